// GPT-2 against its restatement in plain ATen.
#include <gtest/gtest.h>

#include "model_numbers/model_case.h"
#include "orthant/models/gpt2/config.h"

namespace orthant {
namespace gpt2_test {

Gpt2Config small(ActivationFunction activation, bool tied, double dropout) {
  Gpt2Config config;
  config.hidden_size = 15;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.intermediate_size = 22;
  config.vocab_size = 13;
  config.max_position_embeddings = 12;
  config.activation_function = activation;
  config.tie_word_embeddings = tied;
  config.embd_pdrop = dropout;
  config.attn_pdrop = dropout;
  config.resid_pdrop = dropout;
  return config;
}

at::Tensor activate(ActivationFunction kind, const at::Tensor& x) {
  switch (kind) {
    case ActivationFunction::gelu:
      return 0.5 * x * (1 + at::erf(x / std::sqrt(2.0)));
    case ActivationFunction::gelu_new:
      return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
    case ActivationFunction::relu:
      return at::relu(x);
    case ActivationFunction::silu:
      break;
  }
  return x * at::sigmoid(x);
}

at::Tensor logits(const Restated& w, const Gpt2Config& config, const at::Tensor& ids, const at::Tensor& mask = {}) {
  at::Tensor x = w["embed.wte.weight"].index({ids}) + w["embed.wpe.weight"].narrow(0, 0, ids.size(1));
  x = w.dropout(x, config.embd_pdrop, "embed.dropout");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    const double eps = config.layer_norm_epsilon;
    const auto parts =
        w.linear(w.layer_norm(x, layer + ".ln_1", eps), layer + ".attn.c_attn").split(config.hidden_size, -1);
    const auto heads = [&](const at::Tensor& t) {
      return t.unflatten(2, {config.num_attention_heads, config.head_size()});
    };
    const at::Tensor attended = w.attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), true, mask,
                                            config.attn_pdrop, layer + ".attn.probabilities");
    x = x + w.dropout(w.linear(attended, layer + ".attn.c_proj"), config.resid_pdrop, layer + ".attn.dropout");
    const at::Tensor wide = w.linear(w.layer_norm(x, layer + ".ln_2", eps), layer + ".mlp.c_fc");
    const at::Tensor narrow = w.linear(activate(config.activation_function, wide), layer + ".mlp.c_proj");
    x = x + w.dropout(narrow, config.resid_pdrop, layer + ".mlp.dropout");
  }
  x = w.layer_norm(x, "head.ln_f", config.layer_norm_epsilon);
  return at::matmul(x, w[config.tie_word_embeddings ? "embed.wte.weight" : "head.lm_head.weight"].t());
}

Fields some_fields() {
  at::Tensor labels = random_ids(2, 9, 13, 2);
  labels[1].narrow(0, 6, 3).fill_(-100);
  return {{"input_ids", random_ids(2, 9, 13, 1)}, {"labels", labels}};
}

TEST(Gpt2, LossAndGradientsAreThoseOfTheFormulas) {
  for (const ActivationFunction activation :
       {ActivationFunction::gelu_new, ActivationFunction::gelu, ActivationFunction::relu, ActivationFunction::silu}) {
    for (const bool tied : {true, false}) {
      for (const double dropout : {0.0, 0.3}) {
        SCOPED_TRACE(testing::Message() << activation_name(activation) << (tied ? " tied" : " untied") << " dropout "
                                        << dropout);
        const Gpt2Config config = small(activation, tied, dropout);
        const Fields fields = some_fields();
        ModelCase model(config, gpt2_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
        const Restated restated(model);
        restated.expect_equal(
            Restated::cross_entropy(logits(restated, config, fields.at("input_ids")), fields.at("labels")),
            model.train(fields));
      }
    }
  }
}

TEST(Gpt2, EveryRecomputeModeAndMicrobatchingAgree) {
  for (const double dropout : {0.0, 0.3}) {
    const Gpt2Config config = small(ActivationFunction::gelu_new, true, dropout);
    ModelCase model(config, gpt2_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
    expect_steps_agree(model, some_fields(), dropout > 0);
  }
}

TEST(Gpt2, ForwardMasksPadding) {
  const Gpt2Config config = small(ActivationFunction::gelu_new, true, 0.3);
  const WorkSize work{.rows = 2, .sequence = 9, .compute = DType::float64};
  ModelCase model(config, forward_spec(config, work, {.mask = true}));
  const at::Tensor ids = random_ids(2, 9, 13, 1);
  at::Tensor mask = at::ones({2, 9}, at::kBool);
  mask[1].narrow(0, 5, 4).fill_(false);
  const at::Tensor found = model.evaluate({{"input_ids", ids}, {"attention_mask", mask}}, {"logits"}).at("logits");
  const Restated restated(model, false);
  expect_close(found, logits(restated, small(ActivationFunction::gelu_new, true, 0), ids, mask), 1e-10, 1e-10,
               "logits");
}

}  // namespace gpt2_test
}  // namespace orthant
