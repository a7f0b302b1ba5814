#include "orthant/models/bert/config.h"

#include <gtest/gtest.h>

#include "models/model_text.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace bert_model_test {

using Names = std::vector<std::string>;

BertModelConfig small() {
  BertModelConfig config;
  config.encoder.hidden_size = 6;
  config.encoder.num_hidden_layers = 2;
  config.encoder.num_attention_heads = 2;
  config.encoder.intermediate_size = 5;
  config.encoder.vocab_size = 7;
  config.encoder.max_position_embeddings = 9;
  return config;
}

Names field_names(const GraphSpec& spec) {
  Names names;
  for (const auto& field : spec.batch_fields) names.push_back(field.name);
  return names;
}

TEST(BertModelSpec, HasAHeadThatBorrowsTheWords) {
  const GraphSpec spec = bert_model_spec(small(), work_of(3, 8));
  EXPECT_EQ(spec.name, "bert");
  EXPECT_EQ(unit_names(spec), (Names{"embed", "layers.0", "layers.1", "head", "loss"}));
  EXPECT_EQ(field_names(spec), (Names{"input_ids", "attention_mask", "token_type_ids", "labels"}));
  EXPECT_EQ(spec.unit("embed").inputs, (Names{"input_ids", "token_type_ids"}));
  EXPECT_EQ(spec.unit("layers.1").inputs, (Names{"hidden.1", "attention_mask"}));
  EXPECT_EQ(spec.unit("layers.1").outputs, (Names{"last_hidden_state"}));
  EXPECT_EQ(spec.value("attention_mask").dtype, DType::boolean);
  EXPECT_EQ(spec.value("token_type_ids").shape, (Shape{3, 8}));
  EXPECT_EQ(spec.value("labels").shape, (Shape{3, 8}));
  EXPECT_EQ(spec.value("logits").shape, (Shape{3, 8, 7}));
  const auto& head = spec.unit("head");
  EXPECT_EQ(head.kind, "bert.head");
  EXPECT_EQ(head.borrowed, (Names{"embed.word.weight"}));
  EXPECT_EQ(parameter_names(head),
            (Names{"head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias", "head.bias"}));
  EXPECT_EQ(parameter_names(spec.unit("embed")).front(), "embed.word.weight");
  EXPECT_EQ(spec.losses(), (Names{"loss"}));
}

TEST(BertModelSpec, CountsTheHead) {
  const GraphSpec spec = bert_model_spec(small(), work_of(2, 8, DType::bfloat16));
  EXPECT_EQ(spec.unit("head").cost.forward_flops, 2.0 * 16 * 6 * (6 + 7));
  // What the dense layer reads and makes, and what the product with the words reads; the activation is made again.
  EXPECT_EQ(spec.unit("head").cost.kept_bytes[0], 16 * (2 * 3 * 6 + 4 * 2));
  // Inputs and output gradients of the dense layer, the norm and the product with the words.
  EXPECT_EQ(spec.unit("head").cost.deferred_bytes, 16 * (2 * (6 + 6 + 6 + 6 + 6 + 7) + 4 * 2));
  BertModelConfig relu = small();
  relu.encoder.hidden_act = ActivationFunction::relu;
  EXPECT_EQ(bert_model_spec(relu, work_of(2, 8, DType::bfloat16)).unit("head").cost.kept_bytes[0],
            16 * (2 * 3 * 6 + 4 * 2));
}

TEST(BertModelSpec, RobertasHeadIsAlwaysTheExactGelu) {
  BertModelConfig config = small();
  config.encoder.hidden_act = ActivationFunction::relu;
  EXPECT_EQ(config.head_activation(), ActivationFunction::relu);
  config.encoder.position_offset = 1;
  EXPECT_EQ(config.head_activation(), ActivationFunction::gelu);
}

TEST(BertModelSpec, ForwardHasAPoolerAndNoLoss) {
  const GraphSpec spec = bert_forward_spec(small(), work_of(3, 8), true);
  EXPECT_EQ(unit_names(spec), (Names{"embed", "layers.0", "layers.1", "pooler"}));
  EXPECT_EQ(field_names(spec), (Names{"input_ids", "attention_mask", "token_type_ids"}));
  EXPECT_EQ(spec.unit("pooler").inputs, (Names{"last_hidden_state"}));
  EXPECT_EQ(spec.unit("pooler").outputs, (Names{"pooler_output"}));
  EXPECT_EQ(spec.value("last_hidden_state").shape, (Shape{3, 8, 6}));
  EXPECT_EQ(parameter_names(spec.unit("pooler")), (Names{"pooler.dense.weight", "pooler.dense.bias"}));
  EXPECT_EQ(unit_names(bert_forward_spec(small(), work_of(3, 8), false)), (Names{"embed", "layers.0", "layers.1"}));
}

TEST(BertModelConfig, ReadsTheEncodersKeys) {
  const auto config = get<BertModelConfig>(
      model_of(R"({"kind": "bert", "hidden_size": 24, "hidden_act": "silu", "freeze": ["embed.*"]})"));
  BertModelConfig expected;
  expected.encoder.hidden_size = 24;
  expected.encoder.hidden_act = ActivationFunction::silu;
  expected.freeze = {"embed.*"};
  EXPECT_EQ(config, expected);
  EXPECT_EQ(get<BertModelConfig>(model_of(R"({"preset": "bert-base-cased"})")).encoder, bert_preset("bert-base-cased"));
  EXPECT_EQ(model_refusal(R"({"kind": "bert", "num_attention_heads": 10})"),
            "model.json:1:41: num_attention_heads: 10 does not divide hidden_size 768\n"
            "  fix: set num_attention_heads to 8 or 12, or hidden_size to 760 or 770");
  EXPECT_EQ(error_text<ConfigError>([&] { bert_model_spec(small(), work_of(1, 10)); }),
            "a sequence of 10 is longer than the model's 9 positions\n"
            "  fix: use 1 to 9 (data.sequence_length; --seq of orthant plan and estimate), or "
            "raise max_position_embeddings");
}

}  // namespace bert_model_test
}  // namespace orthant
