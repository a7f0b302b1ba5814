// BERT and RoBERTa with the head of masked language modelling, and their forward pass, against plain ATen.
#include <gtest/gtest.h>

#include "model_numbers/model_case.h"
#include "orthant/models/bert/config.h"

namespace orthant {
namespace bert_test {

constexpr std::int64_t kPadding = 4;

BertModelConfig small(ActivationFunction activation, bool roberta, double dropout) {
  BertModelConfig config;
  auto& encoder = config.encoder;
  encoder.hidden_size = 15;
  encoder.num_hidden_layers = 2;
  encoder.num_attention_heads = 3;
  encoder.intermediate_size = 22;
  encoder.vocab_size = 13;
  encoder.max_position_embeddings = 19;
  encoder.type_vocab_size = 3;
  encoder.hidden_act = activation;
  encoder.hidden_dropout_prob = dropout;
  encoder.attention_probs_dropout_prob = dropout;
  encoder.pad_token_id = kPadding;
  encoder.position_offset = roberta ? kPadding + 1 : 0;
  return config;
}

at::Tensor activate(ActivationFunction kind, const at::Tensor& x) {
  if (kind == ActivationFunction::relu) return at::relu(x);
  if (kind == ActivationFunction::silu) return x * at::sigmoid(x);
  if (kind == ActivationFunction::gelu) return 0.5 * x * (1 + at::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
}

// Token by token, as Hugging Face defines them.
at::Tensor positions(const BertConfig& config, const at::Tensor& ids) {
  at::Tensor found = at::empty_like(ids);
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < ids.size(1); ++i) {
      const bool padding = ids[row][i].item<std::int64_t>() == config.pad_token_id;
      if (!padding) ++seen;
      found[row][i] = config.position_offset == 0 ? i : config.pad_token_id + (padding ? 0 : seen);
    }
  }
  return found;
}

at::Tensor encoded(const Restated& w, const BertConfig& config, const Fields& fields) {
  const at::Tensor& ids = fields.at("input_ids");
  const double eps = config.layer_norm_eps, p = config.hidden_dropout_prob;
  at::Tensor x = w["embed.word.weight"].index({ids}) + w["embed.position.weight"].index({positions(config, ids)}) +
                 w["embed.token_type.weight"].index({fields.at("token_type_ids")});
  x = w.dropout(w.layer_norm(x, "embed.norm", eps), p, "embed.dropout");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    const auto heads = [&](const char* name) {
      return w.linear(x, layer + ".attention." + name).unflatten(2, {config.num_attention_heads, config.head_size()});
    };
    const at::Tensor attended =
        w.attention(heads("query"), heads("key"), heads("value"), false, fields.at("attention_mask"),
                    config.attention_probs_dropout_prob, layer + ".attention.probabilities");
    x = w.layer_norm(x + w.dropout(w.linear(attended, layer + ".attention.output"), p, layer + ".attention.dropout"),
                     layer + ".attention.norm", eps);
    const at::Tensor wide = activate(config.hidden_act, w.linear(x, layer + ".mlp.up"));
    x = w.layer_norm(x + w.dropout(w.linear(wide, layer + ".mlp.down"), p, layer + ".mlp.dropout"), layer + ".mlp.norm",
                     eps);
  }
  return x;
}

at::Tensor logits(const Restated& w, const BertModelConfig& config, const Fields& fields) {
  const ActivationFunction activation =
      config.encoder.position_offset > 0 ? ActivationFunction::gelu : config.encoder.hidden_act;
  const at::Tensor active = activate(activation, w.linear(encoded(w, config.encoder, fields), "head.dense"));
  return at::matmul(w.layer_norm(active, "head.norm", config.encoder.layer_norm_eps), w["embed.word.weight"].t()) +
         w["head.bias"];
}

// Padding in front, in the middle and at the end, and a mask that is not where the padding is.
Fields some_fields() {
  at::Tensor ids = random_ids(2, 9, 13, 1);
  ids[0][0] = kPadding;
  ids[0][4] = kPadding;
  ids[1].narrow(0, 6, 3).fill_(kPadding);
  at::Tensor mask = at::ones({2, 9}, at::kBool);
  mask[0][2].fill_(false);
  mask[1].narrow(0, 7, 2).fill_(false);
  at::Tensor labels = at::full({2, 9}, -100, at::kLong);
  labels[0][1] = 3;
  labels[0][5] = 12;
  labels[1][0] = 0;
  return {{"input_ids", ids}, {"attention_mask", mask}, {"token_type_ids", random_ids(2, 9, 3, 3)}, {"labels", labels}};
}

TEST(Bert, LossAndGradientsAreThoseOfTheFormulas) {
  for (const ActivationFunction activation :
       {ActivationFunction::gelu, ActivationFunction::gelu_new, ActivationFunction::relu, ActivationFunction::silu}) {
    for (const bool roberta : {false, true}) {
      for (const double dropout : {0.0, 0.3}) {
        SCOPED_TRACE(testing::Message() << activation_name(activation) << (roberta ? " RoBERTa" : " BERT")
                                        << " dropout " << dropout);
        const BertModelConfig config = small(activation, roberta, dropout);
        const Fields fields = some_fields();
        ModelCase model(config, bert_model_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
        const Restated restated(model);
        restated.expect_equal(Restated::cross_entropy(logits(restated, config, fields), fields.at("labels")),
                              model.train(fields));
      }
    }
  }
}

TEST(Bert, EveryRecomputeModeAndMicrobatchingAgree) {
  for (const double dropout : {0.0, 0.3}) {
    const BertModelConfig config = small(ActivationFunction::gelu, true, dropout);
    ModelCase model(config, bert_model_spec(config, {.rows = 2, .sequence = 9, .compute = DType::float64}));
    expect_steps_agree(model, some_fields(), dropout > 0);
  }
}

TEST(Bert, ForwardGivesStatesAndThePooledFirstOne) {
  for (const bool roberta : {false, true}) {
    const BertModelConfig config = small(ActivationFunction::gelu, roberta, 0.3);
    const WorkSize work{.rows = 2, .sequence = 9, .compute = DType::float64};
    ModelCase model(config, forward_spec(config, work));
    const Fields fields = some_fields();
    const auto found = model.evaluate(fields, {"last_hidden_state", "pooler_output"});
    const Restated restated(model, false);
    const at::Tensor states = encoded(restated, small(ActivationFunction::gelu, roberta, 0).encoder, fields);
    expect_close(found.at("last_hidden_state"), states, 1e-10, 1e-10, "states");
    expect_close(found.at("pooler_output"), at::tanh(restated.linear(states.select(1, 0), "pooler.dense")), 1e-10,
                 1e-10, "pooled");
    ModelCase alone(config, forward_spec(config, work, {.pooler = false}));
    alone.copy_from(model);
    expect_same_bits(alone.evaluate(fields, {"last_hidden_state"}).at("last_hidden_state"),
                     found.at("last_hidden_state"), "states without a pooler");
  }
}

}  // namespace bert_test
}  // namespace orthant
