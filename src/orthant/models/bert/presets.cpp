#include "orthant/models/presets.h"

#include <array>

#include "orthant/models/bert/config.h"

namespace orthant {
namespace {

struct BertRow {
  std::string_view name;
  std::int64_t hidden, layers, heads, inner, vocab, positions, types;
  double eps;
  std::int64_t pad, offset;
};

constexpr std::array<BertRow, 7> kBertRows = {{
    {"bert-base-cased", 768, 12, 12, 3072, 28996, 512, 2, 1e-12, 0, 0},
    {"bert-large-cased", 1024, 24, 16, 4096, 28996, 512, 2, 1e-12, 0, 0},
    {"bert-base-uncased", 768, 12, 12, 3072, 30522, 512, 2, 1e-12, 0, 0},
    {"bert-large-uncased", 1024, 24, 16, 4096, 30522, 512, 2, 1e-12, 0, 0},
    {"roberta-base", 768, 12, 12, 3072, 50265, 514, 1, 1e-5, 1, 2},
    {"roberta-large", 1024, 24, 16, 4096, 50265, 514, 1, 1e-5, 1, 2},
    {"bert-tiny", 64, 2, 2, 256, 1024, 128, 2, 1e-12, 0, 0},
}};

BertConfig bert_of(const BertRow& row) {
  BertConfig config;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.intermediate_size = row.inner;
  config.vocab_size = row.vocab;
  config.max_position_embeddings = row.positions;
  config.type_vocab_size = row.types;
  config.layer_norm_eps = row.eps;
  config.pad_token_id = row.pad;
  config.position_offset = row.offset;
  return config;
}

}  // namespace

std::vector<Preset> bert_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kBertRows)
    presets.push_back({std::string(row.name), BertModelConfig{.encoder = bert_of(row), .freeze = {}}});
  return presets;
}

BertConfig bert_preset(std::string_view name) {
  return get<BertModelConfig>(preset_config(bert_family(), name)).encoder;
}

}  // namespace orthant
