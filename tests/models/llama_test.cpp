#include "orthant/models/llama/config.h"

#include <gtest/gtest.h>

#include <random>

#include "models/model_text.h"
#include "orthant/models/presets.h"
#include "orthant/models/totals.h"

namespace orthant {
namespace llama_test {

using Names = std::vector<std::string>;

// 6 wide, 2 heads of 4 channels over 1 key/value head, 5 inner, 7 words: every size differs.
LlamaConfig small() {
  LlamaConfig config;
  config.hidden_size = 6;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 4;
  config.intermediate_size = 5;
  config.vocab_size = 7;
  config.max_position_embeddings = 16;
  return config;
}

TEST(LlamaSpec, HasUnitsAndValuesInOrder) {
  const GraphSpec spec = llama_spec(small(), work_of(3, 8));
  EXPECT_EQ(spec.name, "llama");
  EXPECT_EQ(unit_names(spec), (Names{"embed", "layers.0", "layers.1", "head", "loss"}));
  EXPECT_EQ(spec.unit("embed").kind, "llama.embed");
  EXPECT_EQ(spec.unit("layers.1").kind, "llama.layer");
  EXPECT_EQ(spec.unit("layers.1").inputs, (Names{"hidden.1"}));
  EXPECT_EQ(spec.unit("layers.1").outputs, (Names{"hidden.2"}));
  EXPECT_EQ(spec.unit("head").kind, "llama.head");
  EXPECT_EQ(spec.unit("head").inputs, (Names{"hidden.2"}));
  EXPECT_EQ(spec.unit("loss").kind, "cross_entropy");
  EXPECT_EQ(spec.unit("loss").inputs, (Names{"logits", "labels"}));
  EXPECT_EQ(spec.losses(), (Names{"loss"}));
  for (const auto& unit : spec.units) EXPECT_EQ(unit.recomputable, unit.kind == "llama.layer") << unit.name;
}

TEST(LlamaSpec, GivesValuesTheirShapesAndPlacements) {
  const GraphSpec spec = llama_spec(small(), work_of(3, 8, DType::bfloat16));
  for (const auto* name : {"input_ids", "labels"}) {
    EXPECT_TRUE(spec.is_batch_field(name));
    EXPECT_EQ(spec.value(name).shape, (Shape{3, 8}));
    EXPECT_EQ(spec.value(name).dtype, DType::int64);
    EXPECT_FALSE(spec.value(name).differentiable);
  }
  for (const auto* name : {"hidden.0", "hidden.1", "hidden.2"}) {
    EXPECT_EQ(spec.value(name).shape, (Shape{3, 8, 6}));
    EXPECT_EQ(spec.value(name).dtype, DType::bfloat16);
    EXPECT_TRUE(spec.value(name).sequence_sharded);
  }
  EXPECT_EQ(spec.value("logits").shape, (Shape{3, 8, 7}));
  ASSERT_TRUE(spec.value("logits").tp);
  EXPECT_EQ(spec.value("logits").tp->dim, 2);
  EXPECT_FALSE(spec.value("logits").sequence_sharded);
  EXPECT_EQ(spec.value("loss").shape, Shape{});
  EXPECT_EQ(spec.value("loss").dtype, DType::float32);
  EXPECT_EQ(llama_spec(small(), work_of(3, 8, DType::float64)).value("loss").dtype, DType::float64);
}

TEST(LlamaSpec, NamesParametersWithDecayedOnesFirst) {
  const GraphSpec spec = llama_spec(small(), work_of(1, 1));
  EXPECT_EQ(parameter_names(spec.unit("embed")), (Names{"embed.weight"}));
  EXPECT_EQ(parameter_names(spec.unit("layers.1")),
            (Names{"layers.1.attention.wq.weight", "layers.1.attention.wk.weight", "layers.1.attention.wv.weight",
                   "layers.1.attention.wo.weight", "layers.1.mlp.w1.weight", "layers.1.mlp.w3.weight",
                   "layers.1.mlp.w2.weight", "layers.1.norm1.weight", "layers.1.norm2.weight"}));
  EXPECT_EQ(parameter_names(spec.unit("head")), (Names{"head.weight", "head.norm.weight"}));
}

TEST(LlamaSpec, DescribesEveryParameterOfALayer) {
  const GraphSpec spec = llama_spec(small(), work_of(1, 1));
  struct Expected {
    const char* name;
    Shape shape;
    int dim;
    std::int64_t granule;
    const char* joined;
  };
  for (const auto& [name, shape, dim, granule, joined] :
       {Expected{"embed.weight", {7, 6}, 0, 1, ""}, Expected{"layers.0.attention.wq.weight", {8, 6}, 0, 4, "qkv"},
        Expected{"layers.0.attention.wk.weight", {4, 6}, 0, 4, "qkv"},
        Expected{"layers.0.attention.wv.weight", {4, 6}, 0, 4, "qkv"},
        Expected{"layers.0.attention.wo.weight", {6, 8}, 1, 4, ""},
        Expected{"layers.0.mlp.w1.weight", {5, 6}, 0, 1, "gate_up"},
        Expected{"layers.0.mlp.w3.weight", {5, 6}, 0, 1, "gate_up"},
        Expected{"layers.0.mlp.w2.weight", {6, 5}, 1, 1, ""}, Expected{"head.weight", {7, 6}, 0, 1, ""}}) {
    const ParameterSpec& parameter = spec.parameter(name);
    EXPECT_EQ(parameter.shape, shape) << name;
    ASSERT_TRUE(parameter.tp) << name;
    EXPECT_EQ(*parameter.tp, (Split{dim, {}, granule})) << name;
    EXPECT_EQ(parameter.joined, joined) << name;
    EXPECT_EQ(parameter.init, (Init{Init::Kind::normal, 0.02})) << name;
    EXPECT_TRUE(parameter.decay) << name;
    EXPECT_FALSE(parameter.partial_under_sequence_parallel) << name;
  }
  for (const auto* name : {"layers.0.norm1.weight", "layers.0.norm2.weight", "head.norm.weight"}) {
    const ParameterSpec& parameter = spec.parameter(name);
    EXPECT_EQ(parameter.shape, Shape{6}) << name;
    EXPECT_EQ(parameter.init.kind, Init::Kind::ones) << name;
    EXPECT_FALSE(parameter.tp) << name;
    EXPECT_FALSE(parameter.decay) << name;
    EXPECT_TRUE(parameter.partial_under_sequence_parallel) << name;
  }
}

TEST(LlamaSpec, TiedHeadBorrowsTheEmbedding) {
  LlamaConfig config = small();
  const GraphSpec untied = llama_spec(config, work_of(2, 4));
  config.tie_word_embeddings = true;
  const GraphSpec spec = llama_spec(config, work_of(2, 4));
  EXPECT_EQ(parameter_names(spec.unit("head")), (Names{"head.norm.weight"}));
  EXPECT_EQ(spec.unit("head").borrowed, (Names{"embed.weight"}));
  EXPECT_EQ(spec.users("embed.weight"), (std::vector<int>{0, 3}));
  EXPECT_EQ(untied.num_parameters() - spec.num_parameters(), 7 * 6);
  EXPECT_EQ(spec.unit("head").cost, untied.unit("head").cost);
}

TEST(LlamaSpec, CountsOneSmallLayerByHand) {
  // T = 2 * 8 = 16 tokens, h = 6, a = 2, k = 1, d = 4, f = 5.
  const GraphSpec spec = llama_spec(small(), work_of(2, 8, DType::bfloat16));
  const UnitCost& layer = spec.unit("layers.0").cost;
  // Products: 16 * 2 * (wq 48 + wk 24 + wv 24 + wo 48 + 3 * 30); attention: 2 * 2 * 2 rows * 2 heads * 64 * 4 / 2.
  EXPECT_EQ(layer.weight_flops, 7488);
  EXPECT_EQ(layer.forward_flops, 7488 + 2048);
  EXPECT_EQ(layer.input_flops, 7488 + 4096);
  EXPECT_EQ(layer.output_bytes, 16 * 6 * 2);
  // 2 bytes of: x 6, normed 6, qkv 16, x2 6, normed2 6, gate_up 10; 4 bytes of two norm statistics; 16 tokens.
  const std::int64_t selective = 16 * (50 * 2 + 2 * 4);
  EXPECT_EQ(layer.kept_bytes[1], selective);
  // Besides: the heads' output 8 and a statistic of each of 2 heads.
  EXPECT_EQ(layer.kept_bytes[0], selective + 16 * (8 * 2 + 2 * 4));
  EXPECT_EQ(layer.kept_bytes[2], 16 * 6 * 2);
  // Inputs and output gradients of: two norms, qkv, wo, gate_up, w2 (with gate and up for its input).
  EXPECT_EQ(layer.deferred_bytes, 16 * ((2 * (6 + 6) + (6 + 16) + (8 + 6) + (6 + 10) + (10 + 6)) * 2 + 2 * 4));
}

TEST(LlamaSpec, CountsTheUnitsAroundTheLayersByHand) {
  const GraphSpec spec = llama_spec(small(), work_of(2, 8, DType::float64));
  EXPECT_EQ(spec.unit("embed").cost, (UnitCost{0, 0, 0, {0, 0, 0}, 16 * 6 * 8, 16 * 6 * 8}));
  const double head = 2.0 * 16 * 6 * 7;
  const std::int64_t kept = 16 * (6 + 6 + 1) * 8;
  // Inputs and output gradients of the norm and the product.
  const std::int64_t deferred = 16 * (6 + 6 + 1 + 6 + 7) * 8;
  EXPECT_EQ(spec.unit("head").cost, (UnitCost{head, head, head, {kept, kept, kept}, deferred, 16 * 7 * 8}));
  const std::int64_t logits = 16 * (7 + 1) * 8;  // and a number per token
  EXPECT_EQ(spec.unit("loss").cost, (UnitCost{0, 0, 0, {logits, logits, logits}, 0, 8}));
  // Statistics are float64 as well: 50 channels, 8 of heads, 2 and 2 statistics.
  EXPECT_EQ(spec.unit("layers.0").cost.kept_bytes[0], 16 * (50 + 8 + 2 + 2) * 8);
}

TEST(LlamaSpec, ParametersFollowTheClosedForm) {
  std::mt19937 random(20240607);
  const auto draw = [&](int low, int high) {
    return static_cast<std::int64_t>(std::uniform_int_distribution<int>(low, high)(random));
  };
  for (int i = 0; i < 100; ++i) {
    LlamaConfig config;
    const std::int64_t k = draw(1, 4);
    const std::int64_t a = k * draw(1, 4);
    const std::int64_t h = a * 2 * draw(1, 8);
    const std::int64_t f = draw(1, 100);
    const std::int64_t layers = draw(1, 5);
    config.hidden_size = h;
    config.num_attention_heads = a;
    config.num_key_value_heads = k;
    config.intermediate_size = f;
    config.num_hidden_layers = layers;
    config.vocab_size = draw(1, 300);
    config.tie_word_embeddings = draw(0, 1) == 1;
    const GraphSpec spec = llama_spec(config, work_of(1, 1));
    // 2 h^2 (1 + k/a) + 3 h f + 2 h
    const std::int64_t layer = 2 * h * h + 2 * h * h * k / a + 3 * h * f + 2 * h;
    EXPECT_EQ(spec.unit("layers.0").num_parameters(), layer) << "h " << h << " a " << a << " k " << k << " f " << f;
    EXPECT_EQ(spec.num_parameters(), layers * layer + h + (config.tie_word_embeddings ? 1 : 2) * config.vocab_size * h);
  }
}

TEST(LlamaSpec, FlopsAreSixPerWeightAndTokenAndCausalAttention) {
  const LlamaConfig config = llama_preset("llama3-8b");
  const std::int64_t s = 8192;
  const GraphTotals sums = totals(llama_spec(config, work_of(1, s)));
  // 6 (P - V h - norms) + 12 L a d s / 2 for each token.
  const double products = static_cast<double>(sums.parameters - 128256LL * 4096 - 65LL * 4096);
  EXPECT_DOUBLE_EQ(sums.total_flops, (6 * products + 6.0 * 32 * 4096 * s) * s);
  EXPECT_DOUBLE_EQ(sums.total_flops, 3 * sums.forward_flops);
}

TEST(LlamaConfig, HasTheDefaultsOfHuggingFace) {
  const LlamaConfig config = llama_of(R"({"kind": "llama"})");
  LlamaConfig expected;
  expected.num_key_value_heads = 32;
  expected.head_dim = 128;
  EXPECT_EQ(config, expected);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.intermediate_size, 11008);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
}

TEST(LlamaConfig, ReadsEveryKey) {
  const LlamaConfig config = llama_of(R"({"kind": "llama", "hidden_size": 60, "num_hidden_layers": 3,
      "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 50, "vocab_size": 70,
      "max_position_embeddings": 90, "rope_theta": 5000, "rms_norm_eps": 1e-4, "tie_word_embeddings": true,
      "initializer_range": 0.01, "freeze": ["embed.*"], "attention_bias": true, "mlp_bias": true,
      "rope_scaling": {"rope_type": "linear", "factor": 2}})");
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::linear;
  scaling.factor = 2;
  const std::vector<std::string> freeze = {"embed.*"};
  EXPECT_EQ(config, (LlamaConfig{.hidden_size = 60,
                                 .num_hidden_layers = 3,
                                 .num_attention_heads = 6,
                                 .num_key_value_heads = 2,
                                 .head_dim = 8,
                                 .intermediate_size = 50,
                                 .vocab_size = 70,
                                 .max_position_embeddings = 90,
                                 .rope_theta = 5000,
                                 .rms_norm_eps = 1e-4,
                                 .rope_scaling = scaling,
                                 .attention_bias = true,
                                 .mlp_bias = true,
                                 .tie_word_embeddings = true,
                                 .initializer_range = 0.01,
                                 .freeze = freeze,
                                 .path = {},
                                 .experts = {}}));
}

TEST(LlamaConfig, OverridesItsPreset) {
  const LlamaConfig config = llama_of(R"({"preset": "llama3-8b", "num_hidden_layers": 4, "vocab_size": 1000})");
  LlamaConfig expected = llama_preset("llama3-8b");
  expected.num_hidden_layers = 4;
  expected.vocab_size = 1000;
  EXPECT_EQ(config, expected);
}

TEST(LlamaConfig, ValuesThatFollowFromOthersFollowOverriddenOnes) {
  const LlamaConfig config = llama_of(R"({"preset": "llama2-7b", "num_attention_heads": 16})");
  EXPECT_EQ(config.num_key_value_heads, 16);
  EXPECT_EQ(config.head_dim, 256);
  const LlamaConfig grouped = llama_of(R"({"preset": "llama3-8b", "num_key_value_heads": null})");
  EXPECT_EQ(grouped.num_key_value_heads, 8);
}

TEST(LlamaConfig, RefusesHeadsThatDoNotDivide) {
  EXPECT_EQ(model_refusal(R"({"kind": "llama", "hidden_size": 100, "num_attention_heads": 12})"),
            "model.json:1:62: num_attention_heads: 12 does not divide hidden_size 100\n"
            "  fix: set num_attention_heads to 10 or 20, or hidden_size to 96 or 108");
  EXPECT_EQ(model_refusal(R"({"kind": "llama", "num_key_value_heads": 6})"),
            "model.json:1:42: num_key_value_heads: 6 does not divide num_attention_heads 32\n"
            "  fix: set num_key_value_heads to 4 or 8");
  EXPECT_EQ(model_refusal(R"({"kind": "llama", "num_key_value_heads": 64})"),
            "model.json:1:42: num_key_value_heads: 64 does not divide num_attention_heads 32\n"
            "  fix: set num_key_value_heads to 32");
  EXPECT_EQ(model_refusal(R"({"kind": "llama", "head_dim": 7})"),
            "model.json:1:31: head_dim: heads of 7 channels are odd; rotary positions turn pairs\n"
            "  fix: set head_dim to 8");
}

TEST(LlamaConfig, RefusesValuesOutOfRange) {
  EXPECT_EQ(
      model_refusal(R"({"kind": "llama", "num_hidden_layers": 0})"),
      "model.json:1:40: num_hidden_layers: 0 is not between 1 and 1024\n  fix: set num_hidden_layers to 1 or more");
  EXPECT_EQ(model_refusal(R"({"kind": "llama", "hidden_size": 4194305})"),
            "model.json:1:34: hidden_size: 4194305 is not between 1 and 4194304\n"
            "  fix: set hidden_size to 4194304 or less");
  EXPECT_EQ(model_refusal(R"({"kind": "llama", "rope_theta": 0})"),
            "model.json:1:33: rope_theta: 0 is not a positive number\n  fix: set rope_theta above 0");
  for (const auto* key : {"num_attention_heads", "intermediate_size", "vocab_size", "max_position_embeddings",
                          "num_key_value_heads", "head_dim", "rms_norm_eps", "initializer_range"}) {
    const std::string text = model_refusal(std::string(R"({"kind": "llama", ")") + key + R"(": -1})");
    EXPECT_NE(text.find(std::string(key) + ": -1 is not"), std::string::npos) << text;
  }
}

TEST(LlamaConfig, RefusesKeysItDoesNotKnow) {
  EXPECT_EQ(model_refusal(R"({"kind": "llama", "hiden_size": 64})"),
            "model.json:1:19: unknown key hiden_size\n  fix: use \"hidden_size\"");
}

TEST(LlamaSpec, HasBiasesWhereAskedFor) {
  LlamaConfig config = small();
  const auto plain = llama_spec(config, work_of(1, 1)).unit("layers.0").num_parameters();
  config.attention_bias = true;
  config.mlp_bias = true;
  const GraphSpec spec = llama_spec(config, work_of(1, 1));
  const std::int64_t heads = (config.num_attention_heads + 2 * config.kv_heads()) * config.head_size();
  EXPECT_EQ(spec.unit("layers.0").num_parameters() - plain,
            heads + config.hidden_size + 2 * config.intermediate_size + config.hidden_size);
  EXPECT_EQ(spec.parameter("layers.1.attention.wk.bias").joined, "qkv_bias");
  EXPECT_EQ(spec.parameter("layers.1.attention.wk.bias").tp->granule, config.head_size());
  EXPECT_EQ(spec.parameter("layers.1.mlp.w3.bias").joined, "gate_up_bias");
  EXPECT_TRUE(spec.parameter("layers.1.attention.wo.bias").partial_under_sequence_parallel);
  EXPECT_TRUE(spec.parameter("layers.1.mlp.w2.bias").partial_under_sequence_parallel);
  EXPECT_FALSE(spec.parameter("layers.1.mlp.w2.bias").decay);
}

TEST(LlamaSpec, RefusesWhatAProgramGotWrong) {
  LlamaConfig config = small();
  config.vocab_size = 0;
  EXPECT_EQ(error_text<ConfigError>([&] { llama_spec(config, work_of(1, 1)); }),
            "llama.vocab_size: 0 is not between 1 and 2147483647\n  fix: set vocab_size to 1 or more");
  EXPECT_EQ(error_text<ConfigError>([&] { llama_spec(small(), work_of(1, 17)); }),
            "a sequence of 17 is longer than the model's 16 positions\n"
            "  fix: use 1 to 16 (data.sequence_length; --seq of orthant plan and estimate), or "
            "raise max_position_embeddings");
  EXPECT_EQ(error_text<ConfigError>([&] { llama_spec(small(), work_of(0, 4)); }),
            "0 rows in a microbatch; it must be 1 to 2147483647\n  fix: use 1 or more");
  EXPECT_EQ(error_text<ConfigError>([&] { llama_spec(small(), work_of(1, 4, DType::int32)); }),
            "compute dtype int32 is not a floating one\n  fix: use one of float64, float32, bfloat16, float16");
  LlamaConfig wide = llama_preset("llama3-405b");
  wide.vocab_size = kMaxEntries;
  EXPECT_EQ(error_text<ConfigError>([&] { llama_spec(wide, work_of(1024, 131072)); }),
            "one microbatch needs an activation of shape [134217728, 2147483647], more than 2^56 bytes\n"
            "  fix: use fewer rows or a shorter sequence");
}

}  // namespace llama_test
}  // namespace orthant
