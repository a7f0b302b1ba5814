#include "orthant/models/presets.h"

#include <array>

#include "orthant/base/error.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace {

struct TrimodalRow {
  std::string_view name;
  std::int64_t tower_layers;  // of two towers that are bert-tiny otherwise
};

constexpr std::array<TrimodalRow, 2> kTrimodalRows = {{{"trimodal-tiny", 2}, {"trimodal-16", 5}}};

BertConfig tiny_bert() {
  for (auto& preset : bert_presets()) {
    if (preset.name == "bert-tiny") return get<BertModelConfig>(preset.config).encoder;
  }
  throw InternalError("no preset bert-tiny");
}

TrimodalConfig trimodal_of(const TrimodalRow& row) {
  TrimodalConfig config;
  config.primary = tiny_bert();
  config.primary.num_hidden_layers = row.tower_layers;
  config.secondary = config.primary;
  config.tabular = TabularConfig{16, 32};
  config.fusion.hidden_size = 64;
  config.projection = 32;
  return config;
}

}  // namespace

std::vector<Preset> trimodal_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kTrimodalRows) presets.push_back({std::string(row.name), trimodal_of(row)});
  return presets;
}

TrimodalConfig trimodal_preset(std::string_view name) {
  return get<TrimodalConfig>(preset_config(trimodal_family(), name));
}

}  // namespace orthant
