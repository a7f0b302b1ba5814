#include "orthant/models/encoder_lm/config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/model_text.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace encoder_lm_test {

using Names = std::vector<std::string>;

// 6 wide, 2 heads, 5 inner, 7 words, 9 positions: every size differs.
EncoderLmConfig small() {
  EncoderLmConfig config;
  config.hidden_size = 6;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 5;
  config.vocab_size = 7;
  config.max_position_embeddings = 9;
  return config;
}

TEST(EncoderLmSpec, HasUnitsInOrderAndParametersDecayedOnesFirst) {
  const GraphSpec spec = encoder_lm_spec(small(), work_of(3, 8));
  EXPECT_EQ(spec.name, "encoder_lm");
  EXPECT_EQ(unit_names(spec), (Names{"embed", "layers.0", "layers.1", "head", "loss"}));
  EXPECT_EQ(parameter_names(spec.unit("embed")), (Names{"embed.weight"}));
  EXPECT_EQ(parameter_names(spec.unit("head")), (Names{"head.weight", "head.bias"}));
  Names layer;
  for (const auto* name :
       {"attention.query.weight", "attention.key.weight", "attention.value.weight", "attention.output.weight",
        "mlp.up.weight", "mlp.down.weight", "attention.query.bias", "attention.key.bias", "attention.value.bias",
        "attention.output.bias", "attention.norm.weight", "attention.norm.bias", "mlp.up.bias", "mlp.down.bias",
        "mlp.norm.weight", "mlp.norm.bias"}) {
    layer.push_back(std::string("layers.1.") + name);
  }
  EXPECT_EQ(parameter_names(spec.unit("layers.1")), layer);
  for (const auto& unit : spec.units) {
    EXPECT_EQ(unit.recomputable, unit.kind == "encoder_lm.layer") << unit.name;
    for (const auto& p : unit.parameters) EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
  }
}

TEST(EncoderLmSpec, DrawsAsTorchDoes) {
  const GraphSpec spec = encoder_lm_spec(small(), work_of(1, 1));
  const auto uniform = [](double bound) { return Init{Init::Kind::uniform, bound}; };
  EXPECT_EQ(spec.parameter("embed.weight").init, uniform(0.1));
  EXPECT_EQ(spec.parameter("head.weight").init, uniform(0.1));
  EXPECT_EQ(spec.parameter("head.bias").init, Init{});
  EXPECT_EQ(spec.parameter("layers.0.attention.key.weight").init, uniform(std::sqrt(6.0 / 24)));
  EXPECT_EQ(spec.parameter("layers.0.attention.key.bias").init, Init{});
  EXPECT_EQ(spec.parameter("layers.0.attention.output.weight").init, uniform(1 / std::sqrt(6.0)));
  EXPECT_EQ(spec.parameter("layers.0.attention.output.bias").init, Init{});
  EXPECT_EQ(spec.parameter("layers.0.mlp.up.bias").init, uniform(1 / std::sqrt(6.0)));
  EXPECT_EQ(spec.parameter("layers.0.mlp.down.weight").init, uniform(1 / std::sqrt(5.0)));
  EXPECT_EQ(spec.parameter("layers.0.mlp.down.bias").init, uniform(1 / std::sqrt(5.0)));
}

TEST(EncoderLmSpec, CountsFlopsAndKeptBytes) {
  const GraphSpec spec = encoder_lm_spec(small(), work_of(2, 8, DType::bfloat16));
  const auto& layer = spec.unit("layers.0");
  const double products = 2.0 * 16 * (4 * 6 * 6 + 2 * 6 * 5);
  const double attention = 2.0 * 2 * 2 * 2 * 8 * 8 * 3 / 2;
  EXPECT_EQ(layer.cost.forward_flops, products + attention);
  EXPECT_EQ(layer.cost.input_flops, products + 2 * attention);
  const std::int64_t others = 16 * (2 * (7 * 6 + 5) + 4 * 4);
  EXPECT_EQ(layer.cost.kept_bytes, (std::array<std::int64_t, 3>{others + 16 * (2 * 6 + 4 * 2), others, 16 * 2 * 6}));
  EXPECT_EQ(spec.unit("head").cost.weight_flops, 2.0 * 16 * 6 * 7);
  EXPECT_EQ(spec.unit("head").cost.kept_bytes[0], 16 * 2 * 6);
  // Inputs and output gradients of: two norms, q k v, output, up, down.
  EXPECT_EQ(layer.cost.deferred_bytes, 16 * ((2 * (6 + 6) + (6 + 18) + (6 + 6) + (6 + 5) + (5 + 6)) * 2 + 4 * 4));
  EXPECT_EQ(spec.unit("head").cost.deferred_bytes, 16 * 2 * (6 + 7));
  EXPECT_EQ(spec.unit("embed").cost.deferred_bytes, 16 * 2 * 6);
}

EncoderLmConfig encoder_lm_of(std::string_view text) {
  return get<EncoderLmConfig>(model_of(text));
}

TEST(EncoderLmConfig, ReadsEveryKey) {
  EncoderLmConfig expected = small();
  expected.layer_norm_eps = 1e-4;
  expected.dropout = 0.3;
  expected.initializer_range = 0.05;
  expected.freeze = {"head.*"};
  EXPECT_EQ(encoder_lm_of(R"({"kind": "encoder_lm", "hidden_size": 6, "num_hidden_layers": 2,
      "num_attention_heads": 2, "intermediate_size": 5, "vocab_size": 7, "max_position_embeddings": 9,
      "layer_norm_eps": 1e-4, "dropout": 0.3, "initializer_range": 0.05, "freeze": ["head.*"]})"),
            expected);
  EXPECT_EQ(encoder_lm_of(R"({"preset": "encoder-lm"})"), EncoderLmConfig{});
  EXPECT_EQ(encoder_lm_of(R"({"preset": "encoder-lm-tiny", "dropout": 0})").hidden_size, 64);
}

TEST(EncoderLmConfig, TheTutorialsModelHasItsParameters) {
  const std::int64_t h = 4096, words = 32768;
  EXPECT_EQ(encoder_lm_spec(encoder_lm_preset("encoder-lm"), work_of(1, 1)).num_parameters(),
            2 * words * h + words + 8 * (6 * h * h + 10 * h));
}

TEST(EncoderLmConfig, RefusesWhatDoesNotFit) {
  EXPECT_EQ(model_refusal(R"({"kind": "encoder_lm", "num_attention_heads": 10})"),
            "model.json:1:47: num_attention_heads: 10 does not divide hidden_size 4096\n"
            "  fix: set num_attention_heads to 8 or 16, or hidden_size to 4090 or 4100");
  for (const auto* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
                          "max_position_embeddings", "layer_norm_eps", "dropout", "initializer_range"}) {
    const std::string text = model_refusal(std::string(R"({"kind": "encoder_lm", ")") + key + R"(": -1})");
    EXPECT_NE(text.find(std::string(key) + ": -1 is not"), std::string::npos) << text;
  }
}

}  // namespace encoder_lm_test
}  // namespace orthant
