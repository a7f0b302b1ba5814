#include "orthant/train/step_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "orthant/base/error.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/plan_model.h"

namespace orthant {
namespace {

constexpr double kTera = 1e12;

// "h200" of "h200-141gb".
std::string chip_of(const std::string& hardware) {
  return hardware.substr(0, hardware.find('-'));
}

}  // namespace

double model_flops_per_sample(const RunConfig& config) try {
  if (config.data.sequence_length <= 0) return 0;
  return model_flops(plan_model(config.name, config.model), config.data.sequence_length, /*causal=*/true);
} catch (const ConfigError&) {
  return 0;
}

std::optional<StepRate> step_rate(const RunConfig& config, double seconds, const std::string& card) {
  // "NVIDIA A100-SXM4-80GB" in words, between spaces.
  std::string name = " " + card + " ";
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return std::isalnum(c) != 0 ? static_cast<char>(std::tolower(c)) : ' ';
  });
  for (const auto& hardware : hardware_names()) {
    const auto chip = chip_of(hardware);
    if (chip == "cpu" || name.find(" " + chip + " ") == std::string::npos) continue;
    return StepRate{
        .tflops = model_flops_per_sample(config) * static_cast<double>(config.global_batch_size) / seconds / kTera,
        .peak_tflops = find_hardware(hardware).peak_flops / kTera,
        .hardware = hardware,
        .ranks = config.mesh.world_size()};
  }
  return std::nullopt;
}

std::string rate_text(const StepRate& rate) {
  return fmt::format("model {:.0f} TFLOP/s, MFU {:.0f}% of {} ({:.0f} TFLOP/s in 16 bits)", rate.tflops,
                     100 * rate.utilization(), rate.hardware, rate.peak_tflops);
}

}  // namespace orthant
