// Llama, with biases and every scaling of its rotary frequencies, Qwen3 and Mistral against plain ATen; and forward
// passes over padded texts.
#include <gtest/gtest.h>

#include "model_numbers/model_case.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/mistral/config.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace llama_test {

using Kind = RopeScaling::Kind;

LlamaConfig small(Kind kind, bool biases) {
  LlamaConfig config;
  config.hidden_size = 15;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 22;
  config.vocab_size = 13;
  config.max_position_embeddings = kind == Kind::dynamic ? 6 : 24;
  config.rope_theta = 100;
  config.rope_scaling.kind = kind;
  config.rope_scaling.factor = kind == Kind::none ? 1 : 2;
  if (kind == Kind::llama3 || kind == Kind::yarn) config.rope_scaling.original_max_position_embeddings = 12;
  config.attention_bias = biases;
  config.mlp_bias = biases;
  config.tie_word_embeddings = biases;
  return config;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / (x.pow(2).mean(-1, true) + eps).sqrt() * weight;
}

// x [rows, sequence, heads, size].
at::Tensor rotated(const at::Tensor& x, const LlamaConfig& config) {
  const auto frequencies = rope_frequencies(config.rope_scaling, config.rope_theta, config.head_size(),
                                            config.max_position_embeddings, x.size(1));
  const at::Tensor angle = at::outer(at::arange(x.size(1), at::kDouble), at::tensor(frequencies.inverse, at::kDouble));
  const at::Tensor cos = (angle.cos() * frequencies.magnitude).unsqueeze(1);
  const at::Tensor sin = (angle.sin() * frequencies.magnitude).unsqueeze(1);
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

at::Tensor logits(const Restated& w, const LlamaConfig& config, const at::Tensor& ids, const at::Tensor& mask = {}) {
  at::Tensor x = w["embed.weight"].index({ids});
  const double eps = config.rms_norm_eps;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    const at::Tensor normed = rms_norm(x, w[layer + ".norm1.weight"], eps);
    const auto heads = [&](const char* name) {
      return w.linear(normed, layer + ".attention." + name).unflatten(2, {-1, config.head_size()});
    };
    const auto turned = [&](const char* name, const char* norm) {
      if (!config.norms_heads()) return rotated(heads(name), config);
      return rotated(rms_norm(heads(name), w[layer + ".attention." + norm], eps), config);
    };
    x = x + w.linear(w.attention(turned("wq", "q_norm.weight"), turned("wk", "k_norm.weight"), heads("wv"), true, mask,
                                 config.attention_dropout, layer + ".attention.probabilities", config.sliding_window),
                     layer + ".attention.wo");
    const at::Tensor middle = rms_norm(x, w[layer + ".norm2.weight"], eps);
    const at::Tensor gate = w.linear(middle, layer + ".mlp.w1");
    x = x + w.linear(gate * at::sigmoid(gate) * w.linear(middle, layer + ".mlp.w3"), layer + ".mlp.w2");
  }
  x = rms_norm(x, w["head.norm.weight"], eps);
  return at::matmul(x, w[config.tie_word_embeddings ? "embed.weight" : "head.weight"].t());
}

TEST(Llama, LossAndGradientsAreThoseOfTheFormulas) {
  for (const Kind kind : {Kind::none, Kind::linear, Kind::dynamic, Kind::llama3, Kind::yarn}) {
    for (const bool biases : {false, true}) {
      SCOPED_TRACE(testing::Message() << rope_kind_name(kind) << (biases ? " with biases" : ""));
      const LlamaConfig config = small(kind, biases);
      const Fields fields = {{"input_ids", random_ids(2, 9, 13, 1)}, {"labels", random_ids(2, 9, 13, 2)}};
      ModelCase model(config, llama_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
      const Restated restated(model);
      restated.expect_equal(
          Restated::cross_entropy(logits(restated, config, fields.at("input_ids")), fields.at("labels")),
          model.train(fields));
    }
  }
}

LlamaConfig small_qwen3(bool biases) {
  LlamaConfig config = small(biases ? Kind::yarn : Kind::none, biases);
  config.variant = &kQwen3;
  config.mlp_bias = false;
  return config;
}

LlamaConfig small_mistral(std::int64_t window) {
  LlamaConfig config = small(Kind::none, false);
  config.variant = &kMistral;
  config.sliding_window = window;
  return config;
}

TEST(Llama, FamiliesHaveLossAndGradientsOfTheirFormulas) {
  std::vector<LlamaConfig> configs = {small_qwen3(false), small_qwen3(true)};
  for (const std::int64_t window : {0, 1, 4, 9, 20}) configs.push_back(small_mistral(window));
  for (LlamaConfig& config : configs) {
    for (const double p : {0.0, 0.25}) {
      SCOPED_TRACE(testing::Message() << family_of(config).name << " window " << config.sliding_window << " dropout "
                                      << p << (config.attention_bias ? " with biases" : ""));
      config.attention_dropout = p;
      const Fields fields = {{"input_ids", random_ids(2, 9, 13, 1)}, {"labels", random_ids(2, 9, 13, 2)}};
      ModelCase model(config, llama_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
      const Restated restated(model);
      restated.expect_equal(
          Restated::cross_entropy(logits(restated, config, fields.at("input_ids")), fields.at("labels")),
          model.train(fields));
    }
  }
}

TEST(Llama, FamiliesAgreeInEveryRecomputeModeAndMicrobatching) {
  for (const LlamaConfig& config : {small_qwen3(true), small_mistral(4)}) {
    ModelCase model(config, llama_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
    expect_steps_agree(model, {{"input_ids", random_ids(2, 9, 13, 1)}, {"labels", random_ids(2, 9, 13, 2)}}, false);
  }
}

// A window that hides nothing runs as none does.
TEST(Llama, AWindowAsLongAsTheSequenceChangesNoBit) {
  const Fields fields = {{"input_ids", random_ids(2, 9, 13, 1)}, {"labels", random_ids(2, 9, 13, 2)}};
  const auto trained = [&](std::int64_t window) {
    const LlamaConfig config = small_mistral(window);
    return ModelCase(config, llama_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64})).train(fields);
  };
  const StepResult none = trained(0);
  for (const std::int64_t window : {9, 10, 4096}) {
    const StepResult found = trained(window);
    expect_same_bits(found.loss, none.loss, "loss");
    for (const auto& [name, gradient] : none.gradients) expect_same_bits(found.gradients.at(name), gradient, name);
  }
}

TEST(Llama, EveryRecomputeModeAndMicrobatchingAgree) {
  const LlamaConfig config = small(Kind::yarn, true);
  ModelCase model(config, llama_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
  expect_steps_agree(model, {{"input_ids", random_ids(2, 9, 13, 1)}, {"labels", random_ids(2, 9, 13, 2)}}, false);
}

TEST(Llama, ForwardMasksPaddingOnTheRight) {
  const LlamaConfig config = small(Kind::llama3, true);
  const WorkSize work{.rows = 2, .sequence = 9, .compute = DType::float64};
  ModelCase model(config, forward_spec(config, work, {.mask = true}));
  const at::Tensor ids = random_ids(2, 9, 13, 1);
  at::Tensor mask = at::ones({2, 9}, at::kBool);
  mask[1].narrow(0, 5, 4).fill_(false);
  const at::Tensor found = model.evaluate({{"input_ids", ids}, {"attention_mask", mask}}, {"logits"}).at("logits");
  expect_close(found, logits(Restated(model, false), config, ids, mask), 1e-10, 1e-10, "logits");
  // The same units serve the next length without a mask of the last.
  const at::Tensor all = at::ones({2, 9}, at::kBool);
  expect_close(model.evaluate({{"input_ids", ids}, {"attention_mask", all}}, {"logits"}).at("logits"),
               logits(Restated(model, false), config, ids), 1e-10, 1e-10, "logits without padding");
}

TEST(Llama, ForwardOfPaddingOnTheLeftIsFinite) {
  const LlamaConfig config = small(Kind::none, false);
  const WorkSize work{.rows = 1, .sequence = 9, .compute = DType::float64};
  ModelCase model(config, forward_spec(config, work, {.mask = true}));
  const at::Tensor ids = random_ids(1, 9, 13, 1);
  at::Tensor mask = at::ones({1, 9}, at::kBool);
  mask[0].narrow(0, 0, 4).fill_(false);
  const at::Tensor found = model.evaluate({{"input_ids", ids}, {"attention_mask", mask}}, {"logits"}).at("logits");
  EXPECT_TRUE(found.isfinite().all().item<bool>());
  // What padding holds does not reach the tokens.
  at::Tensor other = ids.clone();
  other[0].narrow(0, 0, 4).fill_(7);
  const at::Tensor again = model.evaluate({{"input_ids", other}, {"attention_mask", mask}}, {"logits"}).at("logits");
  expect_same_bits(again.narrow(1, 4, 5), found.narrow(1, 4, 5), "logits of tokens");
}

}  // namespace llama_test
}  // namespace orthant
