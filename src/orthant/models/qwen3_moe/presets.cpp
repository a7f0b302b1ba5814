#include <array>

#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen3_moe/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 3> kQwen3MoeRows = {{
    {"qwen3-30b-a3b", 2048, 48, 32, 4, 6144, 151936, 40960, 1e6, 0, 128, false, 0, 128, 8, 768},
    {"qwen3-235b-a22b", 4096, 94, 64, 4, 12288, 151936, 40960, 1e6, 0, 128, false, 0, 128, 8, 1536},
    {"qwen3-moe-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 32, false, 0, 8, 2, 48},
}};

}  // namespace

std::vector<Preset> qwen3_moe_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kQwen3MoeRows) presets.push_back(preset_of(row, kQwen3Moe, 1e-6));
  return presets;
}

}  // namespace orthant
