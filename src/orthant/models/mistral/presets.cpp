#include <array>

#include "orthant/models/llama/variant.h"
#include "orthant/models/mistral/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 2> kMistralRows = {{
    {"mistral-7b", 4096, 32, 32, 8, 14336, 32000, 32768, 1e4, 0, 0, false, 4096},
    {"mistral-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 0, false, 16},
}};

}  // namespace

std::vector<Preset> mistral_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kMistralRows) presets.push_back(preset_of(row, kMistral, 1e-5));
  return presets;
}

}  // namespace orthant
