#include "orthant/models/presets.h"

#include "orthant/base/error.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace {

// Not by bert_preset(), which looks through all families.
BertConfig tiny_bert() {
  for (auto& preset : bert_presets()) {
    if (preset.name == "bert-tiny") return get<BertModelConfig>(preset.config).encoder;
  }
  throw InternalError("no preset bert-tiny");
}

// Of two towers of so many layers that are bert-tiny otherwise.
TrimodalConfig trimodal_of(std::int64_t tower_layers) {
  TrimodalConfig config;
  config.primary = tiny_bert();
  config.primary.num_hidden_layers = tower_layers;
  config.secondary = config.primary;
  config.tabular = TabularConfig{16, 32};
  config.fusion.hidden_size = 64;
  config.projection = 32;
  return config;
}

}  // namespace

std::vector<Preset> trimodal_presets() {
  return {{"trimodal-tiny", trimodal_of(2)}, {"trimodal-16", trimodal_of(5)}};
}

TrimodalConfig trimodal_preset(std::string_view name) {
  return get<TrimodalConfig>(preset_config(trimodal_family(), name));
}

}  // namespace orthant
