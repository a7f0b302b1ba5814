#include <array>

#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 7> kQwen3Rows = {{
    {"qwen3-0.6b", 1024, 28, 16, 8, 3072, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-1.7b", 2048, 28, 16, 8, 6144, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-4b", 2560, 36, 32, 8, 9728, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-8b", 4096, 36, 32, 8, 12288, 151936, 40960, 1e6, 0, 128},
    {"qwen3-14b", 5120, 40, 40, 8, 17408, 151936, 40960, 1e6, 0, 128},
    {"qwen3-32b", 5120, 64, 64, 8, 25600, 151936, 40960, 1e6, 0, 128},
    {"qwen3-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 32},
}};

}  // namespace

std::vector<Preset> qwen3_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kQwen3Rows) presets.push_back(preset_of(row, kQwen3, 1e-6));
  return presets;
}

}  // namespace orthant
