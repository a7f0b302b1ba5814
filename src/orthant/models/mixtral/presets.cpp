#include <array>

#include "orthant/models/llama/variant.h"
#include "orthant/models/mixtral/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 3> kMixtralRows = {{
    {"mixtral-8x7b", 4096, 32, 32, 8, 14336, 32000, 32768, 1e6, 0, 0, false, 0, 8, 2},
    {"mixtral-8x22b", 6144, 56, 48, 8, 16384, 32000, 65536, 1e6, 0, 0, false, 0, 8, 2},
    {"mixtral-tiny", 64, 2, 4, 2, 96, 256, 512, 1e4, 0, 0, false, 0, 4, 2},
}};

}  // namespace

std::vector<Preset> mixtral_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kMixtralRows) presets.push_back(preset_of(row, kMixtral, 1e-5));
  return presets;
}

}  // namespace orthant
