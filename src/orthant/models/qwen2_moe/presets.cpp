#include <array>

#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen2_moe/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 3> kQwen2MoeRows = {{
    {"qwen1.5-moe-a2.7b", 2048, 24, 16, 16, 5632, 151936, 8192, 1e6, 0, 0, false, 0, 60, 4, 1408, 5632, false},
    {"qwen2-57b-a14b", 3584, 28, 28, 4, 18944, 151936, 131072, 1e6, 0, 0, false, 0, 64, 8, 2560, 20480, false},
    {"qwen2-moe-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 0, false, 0, 8, 2, 48, 96, false},
}};

}  // namespace

std::vector<Preset> qwen2_moe_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kQwen2MoeRows) {
    presets.push_back(preset_of(row, kQwen2Moe, 1e-6));
    get<LlamaConfig>(presets.back().config).attention_bias = true;
  }
  return presets;
}

}  // namespace orthant
