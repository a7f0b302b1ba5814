#include "orthant/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "orthant/base/error.h"

namespace orthant::cuda {
namespace {

using Program = void*;
using Result = int;  // 0: done

// libnvrtc opens its builtins by name alone: of a library given by path they lie in the same folder.
std::vector<std::string> library_names(const std::string& path) {
  if (path.empty()) return {"libcaffe2_nvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(path).parent_path(), ignored)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so")) dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  return {path};
}

}  // namespace

Nvrtc::Nvrtc(const std::string& path) : library_(library_names(path)) {}

std::string Nvrtc::version() const {
  Result (*version)(int*, int*) = nullptr;
  library_.find(version, "nvrtcVersion");
  int major = 0, minor = 0;
  version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

CompiledKernels Nvrtc::compile(std::string_view source, std::string_view name, const std::string& architecture,
                               const std::vector<std::string>& options) const {
  Result (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Result (*run)(Program, int, const char* const*) = nullptr;
  Result (*destroy)(Program*) = nullptr;
  Result (*log_size)(Program, std::size_t*) = nullptr;
  Result (*get_log)(Program, char*) = nullptr;
  Result (*cubin_size)(Program, std::size_t*) = nullptr;
  Result (*get_cubin)(Program, char*) = nullptr;
  library_.find(create, "nvrtcCreateProgram");
  library_.find(run, "nvrtcCompileProgram");
  library_.find(destroy, "nvrtcDestroyProgram");
  library_.find(log_size, "nvrtcGetProgramLogSize");
  library_.find(get_log, "nvrtcGetProgramLog");
  library_.find(cubin_size, "nvrtcGetCUBINSize");
  library_.find(get_cubin, "nvrtcGetCUBIN");

  std::vector<std::string> all = {"--gpu-architecture=" + architecture, "--std=c++17"};
  all.insert(all.end(), options.begin(), options.end());
  std::vector<const char*> pointers;
  for (const auto& option : all) pointers.push_back(option.c_str());
  Program program = nullptr;
  const std::string text(source), file(name);
  create(&program, text.c_str(), file.c_str(), 0, nullptr, nullptr);
  const Result result = run(program, static_cast<int>(pointers.size()), pointers.data());
  CompiledKernels out;
  std::size_t size = 0;
  if (log_size(program, &size) == 0 && size > 1) {
    out.log.resize(size);
    get_log(program, out.log.data());
    out.log.resize(size - 1);  // without the closing zero
  }
  if (result == 0 && cubin_size(program, &size) == 0) {
    out.cubin.resize(size);
    get_cubin(program, out.cubin.data());
  }
  destroy(&program);
  if (out.cubin.empty()) {
    throw InternalError(fmt::format("the kernels of {} do not compile for {} (NVRTC {}, result {}):\n{}", name,
                                    architecture, version(), result, out.log));
  }
  return out;
}

}  // namespace orthant::cuda
