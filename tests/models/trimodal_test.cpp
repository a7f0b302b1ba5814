#include "orthant/models/trimodal/config.h"

#include <gtest/gtest.h>

#include "models/model_text.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/bert/tower.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace trimodal_test {

using Names = std::vector<std::string>;

TrimodalConfig tiny() {
  return trimodal_preset("trimodal-tiny");
}

TEST(TrimodalSpec, HasUnitsAndValuesInOrder) {
  WorkSize work = work_of(3, 8);
  work.secondary_sequence = 5;
  const GraphSpec spec = trimodal_spec(tiny(), work);
  EXPECT_EQ(spec.name, "trimodal");
  EXPECT_EQ(unit_names(spec),
            (Names{"primary.embed", "primary.layers.0", "primary.layers.1", "primary.pooler", "secondary.embed",
                   "secondary.layers.0", "secondary.layers.1", "secondary.pooler", "tabular", "fusion", "loss"}));
  EXPECT_EQ(spec.unit("tabular").kind, "trimodal.tabular");
  EXPECT_EQ(spec.unit("tabular").inputs, (Names{"tabular"}));
  EXPECT_EQ(spec.unit("tabular").outputs, (Names{"tabular.features"}));
  EXPECT_EQ(spec.unit("fusion").kind, "trimodal.fusion");
  EXPECT_EQ(spec.unit("fusion").inputs, (Names{"primary.pooled", "secondary.pooled", "tabular.features"}));
  EXPECT_EQ(spec.unit("loss").inputs, (Names{"logits", "labels"}));
  EXPECT_EQ(spec.value("primary.hidden.0").shape, (Shape{3, 8, 64}));
  EXPECT_EQ(spec.value("secondary.hidden.0").shape, (Shape{3, 5, 64}));
  EXPECT_EQ(spec.value("secondary_mask").shape, (Shape{3, 5}));
  EXPECT_EQ(spec.value("tabular").shape, (Shape{3, 16}));
  EXPECT_FALSE(spec.value("tabular").differentiable);
  EXPECT_EQ(spec.value("labels").shape, Shape{3});
  EXPECT_EQ(spec.value("logits").shape, (Shape{3, 2}));
  EXPECT_FALSE(spec.value("logits").tp);
}

TEST(TrimodalSpec, NamesParametersOfTableAndFusion) {
  const GraphSpec spec = trimodal_spec(tiny(), work_of(3, 8));
  EXPECT_EQ(parameter_names(spec.unit("tabular")),
            (Names{"tabular.linear.weight", "tabular.linear.bias", "tabular.norm.weight", "tabular.norm.bias"}));
  EXPECT_EQ(parameter_names(spec.unit("fusion")),
            (Names{"fusion.hidden.weight", "fusion.output.weight", "fusion.hidden.bias", "fusion.output.bias"}));
  EXPECT_EQ(spec.parameter("tabular.linear.weight").shape, (Shape{32, 16}));
  EXPECT_EQ(spec.parameter("tabular.norm.weight").init.kind, Init::Kind::ones);
  EXPECT_EQ(spec.parameter("fusion.hidden.weight").shape, (Shape{64, 96}));
  EXPECT_EQ(spec.parameter("fusion.output.weight").shape, (Shape{2, 64}));
  EXPECT_EQ(spec.parameter("fusion.output.weight").init, (Init{Init::Kind::normal, 0.02}));
  EXPECT_FALSE(spec.parameter("fusion.output.bias").decay);
}

TEST(TrimodalSpec, CountsTableFusionAndLossByHand) {
  TrimodalConfig config = tiny();
  const GraphSpec spec = trimodal_spec(config, work_of(3, 8, DType::bfloat16));
  // 3 rows: input and normed 2 * 16, relu 32, in 2 bytes; two statistics in 4.
  const std::int64_t tabular = 3 * ((2 * 16 + 32) * 2 + 2 * 4);
  // Inputs and output gradients of norm and product.
  const std::int64_t deferred = 3 * ((16 + 16 + 16 + 32) * 2 + 2 * 4);
  // The norm's weights need the gradient of what it made.
  EXPECT_EQ(spec.unit("tabular").cost, (UnitCost{3072, 3072, 3072, {tabular, tabular, tabular}, deferred, 3 * 32 * 2}));
  // Concatenation 96 and what relu reads, 64; what relu and dropout leave of it is made again.
  const std::int64_t fusion = 3 * (96 + 64) * 2;
  const double products = 2.0 * 3 * 64 * (96 + 2);
  EXPECT_EQ(spec.unit("fusion").cost,
            (UnitCost{products, products, products, {fusion, fusion, fusion}, 3 * (96 + 64 + 64 + 2) * 2, 12}));
  EXPECT_EQ(spec.unit("loss").cost, (UnitCost{0, 0, 0, {24, 24, 24}, 0, 4}));
  config.fusion.dropout = 0;
  EXPECT_EQ(trimodal_spec(config, work_of(3, 8, DType::bfloat16)).unit("fusion").cost.kept_bytes[0], fusion);
}

TEST(TrimodalSpec, WorksWithoutATable) {
  TrimodalConfig config = tiny();
  config.tabular = std::nullopt;
  const GraphSpec spec = trimodal_spec(config, work_of(3, 8));
  EXPECT_EQ(spec.unit("fusion").inputs, (Names{"primary.pooled", "secondary.pooled"}));
  EXPECT_FALSE(spec.is_batch_field("tabular"));
  EXPECT_EQ(spec.parameter("fusion.hidden.weight").shape, (Shape{64, 64}));
  EXPECT_THROW(spec.unit("tabular"), ConfigError);
}

TEST(TrimodalSpec, SharedTowersHaveOneSetOfParameters) {
  TrimodalConfig config = tiny();
  const GraphSpec apart = trimodal_spec(config, work_of(3, 8));
  config.shared_towers = true;
  const GraphSpec shared = trimodal_spec(config, work_of(3, 8));
  std::int64_t tower = 0;
  for (const auto* name : {"embed", "layers.0", "layers.1", "pooler"}) {
    const UnitSpec& first = shared.unit(std::string("primary.") + name);
    const UnitSpec& second = shared.unit(std::string("secondary.") + name);
    EXPECT_TRUE(second.parameters.empty()) << name;
    EXPECT_EQ(second.borrowed, parameter_names(first)) << name;
    EXPECT_EQ(second.cost, first.cost) << name;
    tower += first.num_parameters();
  }
  EXPECT_EQ(apart.num_parameters() - shared.num_parameters(), tower);
  EXPECT_EQ(shared.users("primary.layers.1.mlp.up.bias"), (std::vector<int>{2, 6}));
}

TEST(TrimodalSpec, PoolerWithoutParametersExists) {
  TrimodalConfig config = tiny();
  config.pooling = Pooling::cls;
  config.projection = std::nullopt;
  const GraphSpec spec = trimodal_spec(config, work_of(3, 8));
  EXPECT_TRUE(spec.unit("secondary.pooler").parameters.empty());
  EXPECT_EQ(spec.parameter("fusion.hidden.weight").shape, (Shape{64, 64 + 64 + 32}));
}

TEST(TrimodalConfig, ReadsEveryKey) {
  const TrimodalConfig config = trimodal_of(R"({"kind": "trimodal", "primary": {"preset": "bert-tiny"},
      "secondary": {"preset": "roberta-base"}, "shared_towers": false, "tabular": {"input_dim": 5, "hidden_dim": 7},
      "fusion": {"hidden_size": 9, "dropout": 0.2, "activation": "relu"}, "pooling": "cls", "projection": 11,
      "num_labels": 3, "class_weights": [1, 2, 0.5], "freeze": ["primary.*"]})");
  TrimodalConfig expected;
  expected.primary = bert_preset("bert-tiny");
  expected.secondary = bert_preset("roberta-base");
  expected.tabular = TabularConfig{5, 7};
  expected.fusion = FusionConfig{9, 0.2, ActivationFunction::relu};
  expected.pooling = Pooling::cls;
  expected.projection = 11;
  expected.num_labels = 3;
  expected.class_weights = {1, 2, 0.5};
  expected.freeze = {"primary.*"};
  EXPECT_EQ(config, expected);
}

TEST(TrimodalConfig, HasDefaults) {
  EXPECT_EQ(trimodal_of(R"({"kind": "trimodal"})"), TrimodalConfig{});
}

TEST(TrimodalConfig, OverridesItsPreset) {
  EXPECT_EQ(trimodal_of(R"({"preset": "trimodal-tiny"})"), tiny());
  TrimodalConfig expected = tiny();
  expected.tabular = std::nullopt;
  expected.projection = std::nullopt;
  EXPECT_EQ(trimodal_of(R"({"preset": "trimodal-tiny", "tabular": null, "projection": null})"), expected);
  expected = tiny();
  expected.tabular->input_dim = 3;
  expected.fusion.dropout = 0;
  expected.secondary.num_hidden_layers = 1;
  EXPECT_EQ(trimodal_of(R"({"preset": "trimodal-tiny", "tabular": {"input_dim": 3}, "fusion": {"dropout": 0},
                            "secondary": {"num_hidden_layers": 1}})"),
            expected);
}

TEST(TrimodalConfig, SharedSecondaryTowerDefaultsToThePrimary) {
  const TrimodalConfig config =
      trimodal_of(R"({"kind": "trimodal", "shared_towers": true, "primary": {"preset": "bert-tiny"}})");
  EXPECT_EQ(config.secondary, bert_preset("bert-tiny"));
}

TEST(TrimodalConfig, RefusesSharedTowersThatDiffer) {
  EXPECT_EQ(model_refusal(R"({"kind": "trimodal", "shared_towers": true, "secondary": {"num_hidden_layers": 6}})"),
            "model.json:1:39: shared_towers: the towers share parameters, but num_hidden_layers is 12 in primary and 6 "
            "in secondary\n  fix: set secondary.num_hidden_layers to 12, or shared_towers to false");
  const std::vector<std::string> differing = {"\"hidden_size\": 60",          "\"num_attention_heads\": 6",
                                              "\"intermediate_size\": 6",     "\"vocab_size\": 600",
                                              "\"type_vocab_size\": 6",       "\"max_position_embeddings\": 6",
                                              "\"layer_norm_eps\": 1e-3",     "\"pad_token_id\": 6",
                                              "\"hidden_act\": \"gelu_new\"", "\"position_offset\": 6"};
  for (const auto& key : differing) {
    const std::string text =
        model_refusal("{\"kind\": \"trimodal\", \"shared_towers\": true, \"secondary\": {" + key + "}}");
    EXPECT_NE(text.find("but " + key.substr(1, key.find('"', 1) - 1) + " is"), std::string::npos) << text;
  }
  EXPECT_NE(model_refusal(R"({"kind": "trimodal", "shared_towers": true, "primary": {"preset": "bert-tiny"},
                              "secondary": {"preset": "bert-tiny", "path": "elsewhere"}})")
                .find("but path is null in primary and elsewhere in secondary"),
            std::string::npos);
  EXPECT_NO_THROW(
      trimodal_of(R"({"kind": "trimodal", "shared_towers": true, "secondary": {"hidden_dropout_prob": 0}})"));
}

TEST(TrimodalConfig, RefusesWhatDoesNotFit) {
  const auto refusal = [](const std::string& keys) { return model_refusal("{\"kind\": \"trimodal\",\n" + keys + "}"); };
  EXPECT_EQ(refusal(R"("num_labels": 1)"),
            "model.json:2:15: num_labels: 1 is not between 2 and 4194304\n  fix: set num_labels to 2 or more");
  EXPECT_EQ(refusal(R"("class_weights": [1, 2, 3])"),
            "model.json:2:18: class_weights: 3 weights for num_labels 2\n  fix: give 2 weights, or none");
  EXPECT_EQ(refusal(R"("class_weights": [1, 0])"),
            "model.json:2:18: class_weights: 0 is not a positive number\n  fix: set class_weights above 0");
  EXPECT_EQ(refusal(R"("pooling": "mean")"),
            "model.json:2:12: pooling: unknown value \"mean\"\n  fix: one of pooler, cls");
  EXPECT_EQ(refusal(R"("fusion": {"activation": "gelu"})"),
            "model.json:2:26: fusion.activation: unknown value \"gelu\"\n  fix: did you mean \"relu\"? (one of relu)");
  EXPECT_EQ(refusal(R"("fusion": {"dropout": -0.5})"),
            "model.json:2:23: fusion.dropout: -0.5 is not a probability below 1\n"
            "  fix: set dropout to 0 (off) or more, and below 1");
  EXPECT_EQ(refusal(R"("tabular": {"input_dim": 4})"),
            "model.json:2:12: missing key tabular.hidden_dim (an integer)\n  fix: add \"hidden_dim\"");
  EXPECT_EQ(refusal(R"("tabular": 3)"), "model.json:2:12: tabular: expected an object, found the number 3");
  EXPECT_EQ(refusal(R"("projection": 0)"),
            "model.json:2:15: projection: 0 is not between 1 and 4194304\n  fix: set projection to 1 or more");
  EXPECT_EQ(refusal(R"("tabullar": null)"), "model.json:2:1: unknown key tabullar\n  fix: use \"tabular\"");
}

TEST(TrimodalSpec, RefusesWhatAProgramGotWrong) {
  const auto refusal = [](const TrimodalConfig& config) {
    return error_text<ConfigError>([&] { trimodal_spec(config, work_of(1, 4)); });
  };
  TrimodalConfig config = tiny();
  config.tabular->hidden_dim = 0;
  EXPECT_EQ(refusal(config),
            "trimodal.tabular.hidden_dim: 0 is not between 1 and 4194304\n  fix: set tabular.hidden_dim to 1 or more");
  config = tiny();
  config.fusion.activation = ActivationFunction::gelu;
  EXPECT_EQ(refusal(config), "trimodal.fusion.activation: gelu is not supported\n  fix: use relu");
  config = tiny();
  config.secondary.vocab_size = 0;
  EXPECT_EQ(refusal(config),
            "secondary.vocab_size: 0 is not between 1 and 2147483647\n  fix: set vocab_size to 1 or more");
  WorkSize work = work_of(1, 4);
  work.secondary_sequence = 129;
  EXPECT_EQ(error_text<ConfigError>([&] { trimodal_spec(tiny(), work); }),
            "secondary: a sequence of 129 is longer than the model's 128 positions\n"
            "  fix: use 1 to 128 (data.secondary_length; --seq of orthant plan and estimate), or "
            "raise max_position_embeddings");
}

}  // namespace trimodal_test
}  // namespace orthant
