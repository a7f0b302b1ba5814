#include <array>

#include "orthant/models/bert/config.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace {

// After the name: hidden, layers, heads, inner, vocabulary, positions, token types.
Preset bert_row(const char* name, const std::array<std::int64_t, 7>& sizes, bool roberta = false) {
  const auto [hidden, layers, heads, inner, vocab, positions, types] = sizes;
  return {name, BertModelConfig{.encoder = {.hidden_size = hidden,
                                            .num_hidden_layers = layers,
                                            .num_attention_heads = heads,
                                            .intermediate_size = inner,
                                            .vocab_size = vocab,
                                            .max_position_embeddings = positions,
                                            .type_vocab_size = types,
                                            .layer_norm_eps = roberta ? 1e-5 : 1e-12,
                                            .pad_token_id = roberta ? 1 : 0,
                                            .position_offset = roberta ? 2 : 0},
                                .freeze = {}}};
}

}  // namespace

std::vector<Preset> bert_presets() {
  return {
      bert_row("bert-base-cased", {768, 12, 12, 3072, 28996, 512, 2}),
      bert_row("bert-large-cased", {1024, 24, 16, 4096, 28996, 512, 2}),
      bert_row("bert-base-uncased", {768, 12, 12, 3072, 30522, 512, 2}),
      bert_row("bert-large-uncased", {1024, 24, 16, 4096, 30522, 512, 2}),
      bert_row("roberta-base", {768, 12, 12, 3072, 50265, 514, 1}, /*roberta=*/true),
      bert_row("roberta-large", {1024, 24, 16, 4096, 50265, 514, 1}, /*roberta=*/true),
      bert_row("bert-tiny", {64, 2, 2, 256, 1024, 128, 2}),
  };
}

BertConfig bert_preset(std::string_view name) {
  return get<BertModelConfig>(preset_config(bert_family(), name)).encoder;
}

}  // namespace orthant
