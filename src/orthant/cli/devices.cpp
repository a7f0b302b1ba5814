#include "orthant/cli/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "orthant/base/error.h"

namespace orthant::cli {

bool built_with_cuda() {
  return ORTHANT_WITH_CUDA != 0;
}

int count_gpus(const launch::Environment& environment) {
  int count = 0;
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  if (visible != environment.end()) {
    const auto& list = visible->second;
    if (list.empty() || list.starts_with("-") || list == "NoDevFiles") return 0;
    return static_cast<int>(std::count(list.begin(), list.end(), ',')) + 1;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const auto name = entry.path().filename().string();
    const bool numbered =
        name.size() > 6 && std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); });
    if (name.starts_with("nvidia") && numbered) ++count;
  }
  return count;
}

void check_device_name(const std::string& name) {
  if (name == "auto" || name == "cpu" || name == "cuda") return;
  throw ConfigError(fmt::format("unknown device '{}'", name), {.remedy = "use --device auto, cpu or cuda"});
}

at::Device choose_device(const std::string& name, int num_gpus, const launch::Job& job, int ranks_per_device) {
  check_device_name(name);
  if (name == "cpu") return at::kCPU;
  if (name == "cuda") {
    if (!built_with_cuda()) {
      throw ConfigError("--device cuda, but this program was built against a libtorch without CUDA",
                        {.remedy = "build with make program PRESET=cuda, or use --device cpu"});
    }
    if (num_gpus == 0)
      throw ConfigError("--device cuda, but this machine shows no GPU", {.remedy = "use --device cpu"});
  }
  if (!built_with_cuda() || num_gpus == 0 || (name == "auto" && num_gpus * ranks_per_device < job.local_world_size))
    return at::kCPU;
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(job.local_rank % num_gpus));
}

}  // namespace orthant::cli
