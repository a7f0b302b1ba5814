#include "orthant/models/bert/tower.h"

#include <gtest/gtest.h>

#include "models/model_text.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/presets.h"
#include "orthant/program/cost.h"

namespace orthant {
namespace bert_test {

using Names = std::vector<std::string>;

// 6 wide, 2 heads, 5 inner, 7 words, 9 positions, 2 types: every size differs.
BertTower small() {
  BertTower tower;
  tower.prefix = "primary";
  tower.config.hidden_size = 6;
  tower.config.num_hidden_layers = 2;
  tower.config.num_attention_heads = 2;
  tower.config.intermediate_size = 5;
  tower.config.vocab_size = 7;
  tower.config.max_position_embeddings = 9;
  tower.config.attention_probs_dropout_prob = 0;
  return tower;
}

GraphSpec spec_of(const BertTower& tower, const WorkSize& work) {
  GraphSpec spec;
  spec.name = "tower";
  append_bert_tower(spec, tower, work);
  add_costs(spec, work.tensor);
  return spec;
}

TEST(BertTower, HasUnitsAndValuesInOrder) {
  const GraphSpec spec = spec_of(small(), work_of(3, 8));
  EXPECT_EQ(unit_names(spec), (Names{"primary.embed", "primary.layers.0", "primary.layers.1", "primary.pooler"}));
  EXPECT_EQ(spec.unit("primary.embed").kind, "bert.embed");
  EXPECT_EQ(spec.unit("primary.embed").inputs, (Names{"primary_ids"}));
  EXPECT_EQ(spec.unit("primary.embed").outputs, (Names{"primary.hidden.0"}));
  EXPECT_EQ(spec.unit("primary.layers.1").kind, "bert.layer");
  EXPECT_EQ(spec.unit("primary.layers.1").inputs, (Names{"primary.hidden.1", "primary_mask"}));
  EXPECT_EQ(spec.unit("primary.layers.1").outputs, (Names{"primary.hidden.2"}));
  EXPECT_EQ(spec.unit("primary.pooler").kind, "bert.pooler");
  EXPECT_EQ(spec.unit("primary.pooler").inputs, (Names{"primary.hidden.2"}));
  EXPECT_EQ(spec.unit("primary.pooler").outputs, (Names{"primary.pooled"}));
  EXPECT_EQ(spec.value("primary_ids").dtype, DType::int64);
  EXPECT_EQ(spec.value("primary_mask").dtype, DType::boolean);
  EXPECT_EQ(spec.value("primary_mask").shape, (Shape{3, 8}));
  EXPECT_EQ(spec.value("primary.hidden.1").shape, (Shape{3, 8, 6}));
  EXPECT_TRUE(spec.value("primary.hidden.1").sequence_sharded);
  EXPECT_EQ(spec.value("primary.pooled").shape, (Shape{3, 6}));
  for (const auto& unit : spec.units) EXPECT_EQ(unit.recomputable, unit.kind == "bert.layer") << unit.name;
}

TEST(BertTower, NamesParametersWithDecayedOnesFirst) {
  BertTower tower = small();
  tower.projection = 3;
  const GraphSpec spec = spec_of(tower, work_of(1, 1));
  EXPECT_EQ(parameter_names(spec.unit("primary.embed")),
            (Names{"primary.embed.word.weight", "primary.embed.position.weight", "primary.embed.token_type.weight",
                   "primary.embed.norm.weight", "primary.embed.norm.bias"}));
  Names layer;
  for (const auto* name :
       {"attention.query.weight", "attention.key.weight", "attention.value.weight", "attention.output.weight",
        "mlp.up.weight", "mlp.down.weight", "attention.query.bias", "attention.key.bias", "attention.value.bias",
        "attention.output.bias", "attention.norm.weight", "attention.norm.bias", "mlp.up.bias", "mlp.down.bias",
        "mlp.norm.weight", "mlp.norm.bias"}) {
    layer.push_back(std::string("primary.layers.1.") + name);
  }
  EXPECT_EQ(parameter_names(spec.unit("primary.layers.1")), layer);
  EXPECT_EQ(parameter_names(spec.unit("primary.pooler")),
            (Names{"primary.pooler.dense.weight", "primary.pooler.projection.weight", "primary.pooler.dense.bias",
                   "primary.pooler.projection.bias"}));
  for (const auto& unit : spec.units) {
    for (const auto& parameter : unit.parameters) {
      EXPECT_EQ(parameter.decay, parameter.shape.size() == 2) << parameter.name;
      const auto kind = parameter.shape.size() == 2               ? Init::Kind::normal
                        : parameter.name.ends_with("norm.weight") ? Init::Kind::ones
                                                                  : Init::Kind::zeros;
      EXPECT_EQ(parameter.init, (Init{kind, kind == Init::Kind::normal ? 0.02 : 0})) << parameter.name;
    }
  }
}

TEST(BertTower, DeclaresPlacementsOfEveryParameter) {
  const GraphSpec spec = spec_of(small(), work_of(1, 1));
  struct Expected {
    const char* name;
    Shape shape;
    int dim;  // -1: replicated
    std::int64_t granule;
    const char* joined;
    bool partial;
  };
  for (const auto& [name, shape, dim, granule, joined, partial] :
       {Expected{"embed.word.weight", {7, 6}, 0, 1, "", false},
        Expected{"embed.position.weight", {9, 6}, -1, 1, "", true},
        Expected{"embed.token_type.weight", {2, 6}, -1, 1, "", true}, Expected{"embed.norm.bias", {6}, -1, 1, "", true},
        Expected{"layers.0.attention.query.weight", {6, 6}, 0, 3, "qkv", false},
        Expected{"layers.0.attention.value.weight", {6, 6}, 0, 3, "qkv", false},
        Expected{"layers.0.attention.key.bias", {6}, 0, 3, "qkv_bias", false},
        Expected{"layers.0.attention.output.weight", {6, 6}, 1, 3, "", false},
        Expected{"layers.0.attention.output.bias", {6}, -1, 1, "", true},
        Expected{"layers.0.attention.norm.weight", {6}, -1, 1, "", true},
        Expected{"layers.0.mlp.up.weight", {5, 6}, 0, 1, "", false},
        Expected{"layers.0.mlp.up.bias", {5}, 0, 1, "", false},
        Expected{"layers.0.mlp.down.weight", {6, 5}, 1, 1, "", false},
        Expected{"layers.0.mlp.down.bias", {6}, -1, 1, "", true},
        Expected{"layers.0.mlp.norm.bias", {6}, -1, 1, "", true},
        Expected{"pooler.dense.weight", {6, 6}, -1, 1, "", false},
        Expected{"pooler.dense.bias", {6}, -1, 1, "", false}}) {
    const ParameterSpec& parameter = spec.parameter(std::string("primary.") + name);
    EXPECT_EQ(parameter.shape, shape) << name;
    EXPECT_EQ(parameter.tp, dim < 0 ? std::nullopt : std::optional(Split{dim, {}, granule})) << name;
    EXPECT_EQ(parameter.joined, joined) << name;
    EXPECT_EQ(parameter.partial_under_sequence_parallel, partial) << name;
  }
}

TEST(BertTower, PoolsAsAsked) {
  BertTower tower = small();
  tower.pooling = Pooling::cls;
  GraphSpec spec = spec_of(tower, work_of(4, 8));
  EXPECT_EQ(parameter_names(spec.unit("primary.pooler")), Names{});
  EXPECT_EQ(spec.unit("primary.pooler").cost, (UnitCost{0, 0, 0, {0, 0, 0}, 0, 96}));
  tower.projection = 3;
  spec = spec_of(tower, work_of(4, 8));
  EXPECT_EQ(parameter_names(spec.unit("primary.pooler")),
            (Names{"primary.pooler.projection.weight", "primary.pooler.projection.bias"}));
  EXPECT_EQ(spec.parameter("primary.pooler.projection.weight").shape, (Shape{3, 6}));
  EXPECT_EQ(spec.value("primary.pooled").shape, (Shape{4, 3}));
  EXPECT_EQ(spec.unit("primary.pooler").cost.deferred_bytes, 4 * (6 + 3) * 4);
  tower.pooling = Pooling::pooler;
  // Products 4 rows * 2 * (6*6 + 6*3); kept: slice and tanh, 4 * 6 floats each; out 4 * 3 floats. Inputs and output
  // gradients of both products wait for the weights.
  EXPECT_EQ(spec_of(tower, work_of(4, 8)).unit("primary.pooler").cost,
            (UnitCost{432, 432, 432, {192, 192, 192}, 4 * (6 + 6 + 6 + 3) * 4, 48}));
}

TEST(BertTower, CountsOneSmallLayerByHand) {
  // T = 2 * 8 = 16 tokens, h = 6, a = 2, d = 3, f = 5.
  const UnitCost layer = spec_of(small(), work_of(2, 8, DType::bfloat16)).unit("primary.layers.0").cost;
  // Products: 16 * 2 * (4 * 36 + 2 * 30); attention: 2 * 2 * 2 rows * 2 heads * 64 * 3.
  EXPECT_EQ(layer.weight_flops, 6528);
  EXPECT_EQ(layer.forward_flops, 6528 + 3072);
  EXPECT_EQ(layer.input_flops, 6528 + 6144);
  EXPECT_EQ(layer.output_bytes, 192);
  // 2 bytes of: x 6, qkv 18, s1 6, n1 6, up 5, s2 6; 4 bytes of 4 norm statistics; 16 tokens.
  const std::int64_t selective = 16 * (47 * 2 + 4 * 4);
  EXPECT_EQ(layer.kept_bytes[1], selective);
  EXPECT_EQ(layer.kept_bytes[0], selective + 16 * (6 * 2 + 2 * 4));
  EXPECT_EQ(layer.kept_bytes[2], 16 * 6 * 2);
  // Inputs and output gradients of: two norms, q k v, output, up, down.
  EXPECT_EQ(layer.deferred_bytes, 16 * ((2 * (6 + 6) + (6 + 18) + (6 + 6) + (6 + 5) + (5 + 6)) * 2 + 4 * 4));
}

TEST(BertTower, KeepsNoProbabilitiesWhenTheyAreDropped) {
  BertTower tower = small();
  tower.config.attention_probs_dropout_prob = 0.1;
  const UnitCost layer = spec_of(tower, work_of(2, 8, DType::bfloat16)).unit("primary.layers.0").cost;
  const std::int64_t selective = 16 * (47 * 2 + 4 * 4);
  EXPECT_EQ(layer.kept_bytes[0], selective + 16 * (6 * 2 + 2 * 4));
  EXPECT_EQ(layer.kept_bytes[1], selective);
}

TEST(BertTower, KeepsTheSumOfEmbeddings) {
  const UnitCost embed = spec_of(small(), work_of(2, 8, DType::bfloat16)).unit("primary.embed").cost;
  const std::int64_t kept = 16 * (6 * 2 + 2 * 4);
  // For the weights: that again, the norm's output gradient, and its input's, which the tables take.
  EXPECT_EQ(embed, (UnitCost{0, 0, 0, {kept, kept, kept}, kept + 2 * 192, 192}));
}

TEST(BertTower, LayerFollowsTheClosedForm) {
  const BertConfig base = bert_preset("bert-base-cased");
  const GraphSpec spec = spec_of({"primary", base}, work_of(1, 1));
  const std::int64_t h = 768;
  const std::int64_t f = 3072;
  EXPECT_EQ(spec.unit("primary.layers.0").num_parameters(), 4 * h * h + 2 * h * f + 9 * h + f);
  EXPECT_EQ(spec.unit("primary.embed").num_parameters(), (28996 + 512 + 2 + 2) * h);
}

TEST(BertTower, RefusesWhatAProgramGotWrong) {
  BertTower tower = small();
  tower.projection = 0;
  EXPECT_EQ(error_text<ConfigError>([&] { spec_of(tower, work_of(1, 1)); }),
            "primary.projection: 0 is not between 1 and 4194304\n  fix: set projection to 1 or more");
  tower = small();
  tower.config.position_offset = 2;
  EXPECT_NO_THROW(spec_of(tower, work_of(1, 7)));
  EXPECT_EQ(error_text<ConfigError>([&] { spec_of(tower, work_of(1, 8)); }),
            "primary: a sequence of 8 is longer than the model's 7 positions\n"
            "  fix: use 1 to 7 (data.sequence_length; --seq of orthant plan and estimate), or "
            "raise max_position_embeddings");
}

BertConfig tower_of(const std::string& keys) {
  return trimodal_of(R"({"kind": "trimodal", "primary": {)" + keys + "}}").primary;
}

std::string tower_refusal(const std::string& keys) {
  return model_refusal("{\"kind\": \"trimodal\", \"primary\": {\n" + keys + "}}");
}

TEST(BertConfig, HasTheDefaultsOfHuggingFace) {
  EXPECT_EQ(tower_of(""), BertConfig{});
  EXPECT_EQ(BertConfig{}.vocab_size, 30522);
}

TEST(BertConfig, ReadsEveryKey) {
  const BertConfig config = tower_of(R"("hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
      "intermediate_size": 50, "vocab_size": 70, "max_position_embeddings": 90, "type_vocab_size": 4,
      "layer_norm_eps": 1e-4, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.2,
      "attention_probs_dropout_prob": 0.3, "pad_token_id": 5, "initializer_range": 0.01, "position_offset": 6,
      "preset": "bert-tiny", "path": "towers/a")");
  EXPECT_EQ(config, (BertConfig{60, 3, 6, 50, 70, 90, 4, 1e-4, ActivationFunction::gelu_new, 0.2, 0.3, 5, 0.01, 6,
                                std::string("towers/a")}));
}

TEST(BertConfig, OverridesItsPreset) {
  BertConfig expected = bert_preset("roberta-base");
  expected.num_hidden_layers = 2;
  EXPECT_EQ(tower_of(R"("preset": "roberta-base", "num_hidden_layers": 2)"), expected);
  EXPECT_EQ(tower_of(R"("preset": "roberta-base", "pad_token_id": 3)").position_offset, 4);
  EXPECT_EQ(tower_of(R"("preset": "bert-tiny", "pad_token_id": 3)").position_offset, 0);
}

TEST(BertConfig, KnowsActivationsByAllTheirNames) {
  const auto read = [](const std::string& name) { return tower_of("\"hidden_act\": \"" + name + "\"").hidden_act; };
  for (const auto& [name, activation] :
       {std::pair{"gelu", ActivationFunction::gelu}, std::pair{"gelu_python", ActivationFunction::gelu},
        std::pair{"gelu_new", ActivationFunction::gelu_new},
        std::pair{"gelu_pytorch_tanh", ActivationFunction::gelu_new},
        std::pair{"gelu_fast", ActivationFunction::gelu_new}, std::pair{"relu", ActivationFunction::relu},
        std::pair{"silu", ActivationFunction::silu}, std::pair{"swish", ActivationFunction::silu}}) {
    EXPECT_EQ(read(name), activation) << name;
  }
}

TEST(BertConfig, RefusesWhatDoesNotFit) {
  EXPECT_EQ(tower_refusal(R"("num_attention_heads": 10)"),
            "model.json:2:24: primary.num_attention_heads: 10 does not divide hidden_size 768\n"
            "  fix: set num_attention_heads to 8 or 12, or hidden_size to 760 or 770");
  EXPECT_EQ(tower_refusal(R"("hidden_act": "glu")"),
            "model.json:2:15: primary.hidden_act: unknown value \"glu\"\n"
            "  fix: did you mean \"gelu\"? (one of gelu, gelu_new, relu, silu)");
  EXPECT_EQ(tower_refusal(R"("hidden_dropout_prob": 1)"),
            "model.json:2:24: primary.hidden_dropout_prob: 1 is not a probability below 1\n"
            "  fix: set hidden_dropout_prob to 0 (off) or more, and below 1");
  EXPECT_EQ(tower_refusal(R"("pad_token_id": 30522)"),
            "model.json:2:17: primary.pad_token_id: 30522 is not between 0 and 30521\n"
            "  fix: set pad_token_id to 30521 or less");
  EXPECT_EQ(tower_refusal(R"("position_offset": 512)"),
            "model.json:2:20: primary.position_offset: 512 is not between 0 and 511\n"
            "  fix: set position_offset to 511 or less");
  EXPECT_EQ(tower_refusal(R"("preset": "bert-base-casd")"),
            "model.json:2:11: primary.preset: unknown preset \"bert-base-casd\"\n"
            "  fix: did you mean \"bert-base-cased\"? (one of bert-base-cased, bert-large-cased, bert-base-uncased, "
            "bert-large-uncased, roberta-base, roberta-large, bert-tiny)");
  for (const auto* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
                          "max_position_embeddings", "type_vocab_size", "attention_probs_dropout_prob",
                          "layer_norm_eps", "initializer_range"}) {
    const std::string text = tower_refusal("\"" + std::string(key) + "\": -1");
    EXPECT_NE(text.find(std::string(key) + ": -1 is not"), std::string::npos) << text;
  }
}

}  // namespace bert_test
}  // namespace orthant
