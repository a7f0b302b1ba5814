// The language model of encoder layers against its restatement in plain ATen, written after PyTorch's tutorial and
// torch.nn.TransformerEncoderLayer.
#include <gtest/gtest.h>

#include "model_numbers/model_case.h"
#include "orthant/models/encoder_lm/config.h"

namespace orthant {
namespace encoder_lm_test {

EncoderLmConfig small(std::int64_t hidden_size, double dropout) {
  EncoderLmConfig config;
  config.hidden_size = hidden_size;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.intermediate_size = 22;
  config.vocab_size = 13;
  config.max_position_embeddings = 12;
  config.dropout = dropout;
  return config;
}

at::Tensor sine_table(std::int64_t sequence, std::int64_t width) {
  at::Tensor table = at::empty({sequence, width}, at::kDouble);
  for (std::int64_t position = 0; position < sequence; ++position) {
    for (std::int64_t channel = 0; channel < width; ++channel) {
      const double rate =
          std::exp(static_cast<double>(channel / 2 * 2) * -std::log(10000.0) / static_cast<double>(width));
      const double angle = static_cast<double>(position) * rate;
      table[position][channel] = channel % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  }
  return table;
}

at::Tensor logits(const Restated& w, const EncoderLmConfig& config, const at::Tensor& ids,
                  const at::Tensor& mask = {}) {
  const double p = config.dropout;
  at::Tensor x = w["embed.weight"].index({ids}) * std::sqrt(static_cast<double>(config.hidden_size)) +
                 sine_table(ids.size(1), config.hidden_size);
  x = w.dropout(x, p, "embed.dropout");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    const auto heads = [&](const char* name) {
      return w.linear(x, layer + ".attention." + name).unflatten(2, {config.num_attention_heads, config.head_size()});
    };
    const at::Tensor attended =
        w.attention(heads("query"), heads("key"), heads("value"), true, mask, p, layer + ".attention.probabilities");
    x = w.layer_norm(x + w.dropout(w.linear(attended, layer + ".attention.output"), p, layer + ".attention.dropout"),
                     layer + ".attention.norm", config.layer_norm_eps);
    const at::Tensor wide = w.dropout(at::relu(w.linear(x, layer + ".mlp.up")), p, layer + ".mlp.activation");
    x = w.layer_norm(x + w.dropout(w.linear(wide, layer + ".mlp.down"), p, layer + ".mlp.dropout"), layer + ".mlp.norm",
                     config.layer_norm_eps);
  }
  return w.linear(x, "head");
}

Fields some_fields() {
  return {{"input_ids", random_ids(2, 9, 13, 1)}, {"labels", random_ids(2, 9, 13, 2)}};
}

TEST(EncoderLm, LossAndGradientsAreThoseOfTheFormulas) {
  for (const std::int64_t hidden_size : {12, 15}) {
    for (const double dropout : {0.0, 0.3}) {
      SCOPED_TRACE(testing::Message() << hidden_size << " wide, dropout " << dropout);
      const EncoderLmConfig config = small(hidden_size, dropout);
      const Fields fields = some_fields();
      ModelCase model(config, encoder_lm_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
      const Restated restated(model);
      restated.expect_equal(
          Restated::cross_entropy(logits(restated, config, fields.at("input_ids")), fields.at("labels")),
          model.train(fields));
    }
  }
}

TEST(EncoderLm, EveryRecomputeModeAndMicrobatchingAgree) {
  for (const double dropout : {0.0, 0.3}) {
    const EncoderLmConfig config = small(15, dropout);
    ModelCase model(config, encoder_lm_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
    expect_steps_agree(model, some_fields(), dropout > 0);
  }
}

TEST(EncoderLm, ForwardMasksPadding) {
  const EncoderLmConfig config = small(15, 0.3);
  const WorkSize work{.rows = 2, .sequence = 9, .compute = DType::float64};
  ModelCase model(config, forward_spec(config, work, {.mask = true}));
  const at::Tensor ids = random_ids(2, 9, 13, 1);
  at::Tensor mask = at::ones({2, 9}, at::kBool);
  mask[1].narrow(0, 5, 4).fill_(false);
  const at::Tensor found = model.evaluate({{"input_ids", ids}, {"attention_mask", mask}}, {"logits"}).at("logits");
  const Restated restated(model, false);
  expect_close(found, logits(restated, small(15, 0), ids, mask), 1e-10, 1e-10, "logits");
}

}  // namespace encoder_lm_test
}  // namespace orthant
