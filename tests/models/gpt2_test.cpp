#include "orthant/models/gpt2/config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/model_text.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace gpt2_test {

using Names = std::vector<std::string>;

// 6 wide, 2 heads, 5 inner, 7 words, 9 positions: every size differs.
Gpt2Config small() {
  Gpt2Config config;
  config.hidden_size = 6;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 5;
  config.vocab_size = 7;
  config.max_position_embeddings = 9;
  return config;
}

TEST(Gpt2Spec, HasUnitsAndValuesInOrder) {
  const GraphSpec spec = gpt2_spec(small(), work_of(3, 8));
  EXPECT_EQ(spec.name, "gpt2");
  EXPECT_EQ(unit_names(spec), (Names{"embed", "layers.0", "layers.1", "head", "loss"}));
  EXPECT_EQ(spec.unit("layers.1").kind, "gpt2.layer");
  EXPECT_EQ(spec.unit("layers.1").inputs, (Names{"hidden.1"}));
  EXPECT_EQ(spec.value("logits").shape, (Shape{3, 8, 7}));
  for (const auto& unit : spec.units) EXPECT_EQ(unit.recomputable, unit.kind == "gpt2.layer") << unit.name;
}

TEST(Gpt2Spec, NamesParametersAsTheOriginalDecayedOnesFirst) {
  const GraphSpec spec = gpt2_spec(small(), work_of(1, 1));
  EXPECT_EQ(parameter_names(spec.unit("embed")), (Names{"embed.wte.weight", "embed.wpe.weight"}));
  Names layer;
  for (const auto* name : {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight",
                           "attn.c_attn.bias", "attn.c_proj.bias", "mlp.c_fc.bias", "mlp.c_proj.bias", "ln_1.weight",
                           "ln_1.bias", "ln_2.weight", "ln_2.bias"}) {
    layer.push_back(std::string("layers.1.") + name);
  }
  EXPECT_EQ(parameter_names(spec.unit("layers.1")), layer);
  EXPECT_EQ(parameter_names(spec.unit("head")), (Names{"head.ln_f.weight", "head.ln_f.bias"}));
  EXPECT_EQ(spec.unit("head").borrowed, (Names{"embed.wte.weight"}));
  Gpt2Config untied = small();
  untied.tie_word_embeddings = false;
  const GraphSpec own = gpt2_spec(untied, work_of(1, 1));
  EXPECT_EQ(parameter_names(own.unit("head")), (Names{"head.lm_head.weight", "head.ln_f.weight", "head.ln_f.bias"}));
  EXPECT_TRUE(own.unit("head").borrowed.empty());
}

TEST(Gpt2Spec, CutsTheJoinedProjectionInThreeBlocksOfHeads) {
  const GraphSpec spec = gpt2_spec(small(), work_of(1, 1));
  for (const auto* name : {"layers.0.attn.c_attn.weight", "layers.0.attn.c_attn.bias"}) {
    const auto& parameter = spec.parameter(name);
    EXPECT_EQ(parameter.shape.front(), 18);
    ASSERT_TRUE(parameter.tp.has_value());
    EXPECT_EQ(*parameter.tp, (Split{0, {6, 6, 6}, 3})) << name;
  }
  EXPECT_EQ(*spec.parameter("layers.0.attn.c_proj.weight").tp, (Split{1, {}, 3}));
  EXPECT_EQ(*spec.parameter("layers.0.mlp.c_fc.bias").tp, (Split{0, {}, 1}));
  EXPECT_TRUE(spec.parameter("embed.wpe.weight").partial_under_sequence_parallel);
  EXPECT_TRUE(spec.parameter("layers.0.mlp.c_proj.bias").partial_under_sequence_parallel);
}

TEST(Gpt2Spec, DrawsMatricesThatEndABranchSmaller) {
  const GraphSpec spec = gpt2_spec(small(), work_of(1, 1));
  const Init plain{Init::Kind::normal, 0.02}, end{Init::Kind::normal, 0.02 / std::sqrt(4.0)};
  EXPECT_EQ(spec.parameter("layers.0.attn.c_attn.weight").init, plain);
  EXPECT_EQ(spec.parameter("layers.0.attn.c_proj.weight").init, end);
  EXPECT_EQ(spec.parameter("layers.1.mlp.c_proj.weight").init, end);
  EXPECT_EQ(spec.parameter("layers.1.mlp.c_proj.bias").init, Init{});
}

TEST(Gpt2Spec, CountsFlopsAndKeptBytes) {
  const GraphSpec spec = gpt2_spec(small(), work_of(2, 8, DType::bfloat16));
  const auto& layer = spec.unit("layers.0");
  const double products = 2.0 * 16 * (4 * 6 * 6 + 2 * 6 * 5);
  const double attention = 2.0 * 2 * 2 * 2 * 8 * 8 * 3 / 2;
  EXPECT_EQ(layer.cost.forward_flops, products + attention);
  EXPECT_EQ(layer.cost.input_flops, products + 2 * attention);
  EXPECT_EQ(layer.cost.weight_flops, products);
  const std::int64_t others = 16 * (2 * (7 * 6 + 5) + 4 * 4);
  EXPECT_EQ(layer.cost.kept_bytes, (std::array<std::int64_t, 3>{others + 16 * (2 * 6 + 4 * 2), others, 16 * 2 * 6}));
  // Inputs and output gradients of: two norms, q k v, output, up, down.
  EXPECT_EQ(layer.cost.deferred_bytes, 16 * ((2 * (6 + 6) + (6 + 18) + (6 + 6) + (6 + 5) + (5 + 6)) * 2 + 4 * 4));
  EXPECT_EQ(layer.cost.output_bytes, 16 * 2 * 6);
  EXPECT_EQ(spec.unit("head").cost.forward_flops, 2.0 * 16 * 6 * 7);
  EXPECT_EQ(spec.unit("head").cost.kept_bytes[2], 16 * (2 * 2 * 6 + 4 * 2));
  EXPECT_EQ(spec.unit("head").cost.deferred_bytes, 16 * (2 * (6 + 6 + 6 + 7) + 4 * 2));
  EXPECT_EQ(spec.unit("embed").cost.deferred_bytes, 16 * 2 * 6);
  EXPECT_EQ(spec.unit("loss").cost.deferred_bytes, 0);
}

Gpt2Config gpt2_of(std::string_view text) {
  return get<Gpt2Config>(model_of(text));
}

TEST(Gpt2Config, ReadsBothFamiliesOfKeys) {
  Gpt2Config expected = small();
  expected.layer_norm_epsilon = 1e-4;
  expected.activation_function = ActivationFunction::relu;
  expected.resid_pdrop = 0.2;
  expected.embd_pdrop = 0.3;
  expected.attn_pdrop = 0.4;
  expected.tie_word_embeddings = false;
  expected.initializer_range = 0.01;
  expected.freeze = {"embed.*"};
  const std::string others = R"("vocab_size": 7, "layer_norm_epsilon": 1e-4, "activation_function": "relu",
      "resid_pdrop": 0.2, "embd_pdrop": 0.3, "attn_pdrop": 0.4, "tie_word_embeddings": false,
      "initializer_range": 0.01, "freeze": ["embed.*"]})";
  EXPECT_EQ(gpt2_of(R"({"kind": "gpt2", "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2,
                        "intermediate_size": 5, "max_position_embeddings": 9, )" +
                    others),
            expected);
  EXPECT_EQ(gpt2_of(R"({"kind": "gpt2", "n_embd": 6, "n_layer": 2, "n_head": 2, "n_inner": 5, "n_positions": 9,
                        "n_ctx": 9, )" +
                    others),
            expected);
}

TEST(Gpt2Config, TheMlpFollowsTheHiddenSize) {
  EXPECT_EQ(gpt2_of(R"({"kind": "gpt2"})").intermediate_size, 3072);
  EXPECT_EQ(gpt2_of(R"({"kind": "gpt2", "n_inner": null, "n_embd": 24})").intermediate_size, 96);
  EXPECT_EQ(gpt2_of(R"({"preset": "gpt2-medium", "hidden_size": 512})").intermediate_size, 2048);
  EXPECT_EQ(gpt2_of(R"({"preset": "gpt2-medium", "n_head": 8})").num_attention_heads, 8);
  EXPECT_EQ(gpt2_of(R"({"preset": "gpt2"})"), gpt2_preset("gpt2"));
}

TEST(Gpt2Config, RefusesASizeThatIsGivenTwiceAndDiffers) {
  EXPECT_EQ(model_refusal(R"({"kind": "gpt2", "n_embd": 24, "hidden_size": 48})"),
            "model.json:1:28: n_embd: hidden_size 48 and n_embd 24 are one size\n"
            "  fix: give one of them, or both the same value");
  EXPECT_EQ(model_refusal(R"({"kind": "gpt2", "n_positions": 24, "n_ctx": 48})"),
            "model.json:1:46: n_ctx: n_positions 24 and n_ctx 48 are one size\n"
            "  fix: give one of them, or both the same value");
  EXPECT_EQ(gpt2_of(R"({"kind": "gpt2", "n_embd": 24, "hidden_size": 24})").hidden_size, 24);
}

TEST(Gpt2Config, RefusesWhatDoesNotFit) {
  EXPECT_EQ(model_refusal(R"({"kind": "gpt2", "num_attention_heads": 10})"),
            "model.json:1:41: num_attention_heads: 10 does not divide hidden_size 768\n"
            "  fix: set num_attention_heads to 8 or 12, or hidden_size to 760 or 770");
  EXPECT_EQ(model_refusal(R"({"kind": "gpt2", "activation_function": "gelu_nwe"})"),
            "model.json:1:41: activation_function: unknown value \"gelu_nwe\"\n"
            "  fix: did you mean \"gelu_new\"? (one of gelu, gelu_new, relu, silu)");
  for (const auto* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
                          "max_position_embeddings", "layer_norm_epsilon", "resid_pdrop", "embd_pdrop", "attn_pdrop",
                          "initializer_range"}) {
    const std::string text = model_refusal(std::string(R"({"kind": "gpt2", ")") + key + R"(": -1})");
    EXPECT_NE(text.find(std::string(key) + ": -1 is not"), std::string::npos) << text;
  }
  EXPECT_EQ(error_text<ConfigError>([&] { gpt2_spec(small(), work_of(1, 10)); }),
            "a sequence of 10 is longer than the model's 9 positions\n"
            "  fix: use 1 to 9 (data.sequence_length; --seq of orthant plan and estimate), or "
            "raise max_position_embeddings");
}

TEST(Gpt2Presets, HaveTheirPublishedParameterCounts) {
  const std::vector<std::pair<std::string, std::int64_t>> expected = {
      {"gpt2", 124'439'808}, {"gpt2-medium", 354'823'168}, {"gpt2-large", 774'030'080}, {"gpt2-xl", 1'557'611'200}};
  for (const auto& [name, count] : expected) {
    EXPECT_EQ(gpt2_spec(gpt2_preset(name), work_of(1, 1)).num_parameters(), count) << name;
  }
}

}  // namespace gpt2_test
}  // namespace orthant
