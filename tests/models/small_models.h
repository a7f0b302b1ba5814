// Every model in a size that a reader can count: 8 wide, 4 heads, 10 inner, 11 words, 9 positions, 2 layers.
#pragma once

#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/qwen2_moe/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant::test {

template <typename Config>
Config sized(Config config) {
  config.hidden_size = 8;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.intermediate_size = 10;
  config.vocab_size = 11;
  config.max_position_embeddings = 9;
  return config;
}

// 2 key/value heads.
inline LlamaConfig small_llama() {
  LlamaConfig config = sized(LlamaConfig{});
  config.num_key_value_heads = 2;
  return config;
}

// 5 experts of 6 inner channels, two for each token, and one for all; the first layer is dense.
inline LlamaConfig small_mixture() {
  LlamaConfig config = small_llama();
  config.variant = &kQwen2Moe;
  config.attention_bias = true;
  config.experts = {.count = 5, .per_token = 2, .inner = 6, .dense_layers = {0}, .shared_inner = 7};
  return config;
}

inline Gpt2Config small_gpt2(bool tied = true) {
  Gpt2Config config = sized(Gpt2Config{});
  config.tie_word_embeddings = tied;
  return config;
}

inline EncoderLmConfig small_encoder_lm() {
  return sized(EncoderLmConfig{});
}

inline BertModelConfig small_bert() {
  return {.encoder = sized(BertConfig{}), .freeze = {}};
}

inline TrimodalConfig small_trimodal(bool shared = false) {
  TrimodalConfig config;
  config.primary = config.secondary = sized(BertConfig{});
  config.shared_towers = shared;
  config.tabular = TabularConfig{.input_dim = 5, .hidden_dim = 6};
  return config;
}

// 2 rows of 3 tokens; 5 in the second tower.
inline WorkSize small_work(const TensorSharing& tensor = {}) {
  return {.rows = 2, .sequence = 3, .secondary_sequence = 5, .tensor = tensor};
}

// Their graphs.
inline GraphSpec llama() {
  return llama_spec(small_llama(), small_work());
}

inline GraphSpec gpt2(bool tied = true) {
  return gpt2_spec(small_gpt2(tied), small_work());
}

inline GraphSpec bert() {
  return bert_model_spec(small_bert(), small_work());
}

}  // namespace orthant::test
