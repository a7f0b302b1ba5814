#include "orthant/plan/estimate/plan_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error_text.h"
#include "files/temporary_folder.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/totals.h"
#include "plan/estimate/published_runs.h"

namespace orthant {
namespace plan_model_test {

using test::TemporaryFolder;

// The model of a file with that text.
PlanModel model_of_file(const std::string& text, const std::string& name = "model.json") {
  const TemporaryFolder folder;
  std::ofstream(folder / name) << text;
  return find_plan_model((folder / name).string());
}

std::string refusal_of_file(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "model.json") << text;
  const std::string found = error_text<ConfigError>([&] { find_plan_model((folder / "model.json").string()); });
  return found.substr(found.find("model.json"));
}

TEST(PlanModel, ShapesOfAllPresetsCountWhatTheirSpecsHold) {
  for (const auto& name : plan_model_names()) {
    const PlanModel model = find_plan_model(name);
    if (!model.config) continue;
    EXPECT_EQ(model.num_parameters(), build_spec(*model.config, WorkSize{}).num_parameters()) << name;
    EXPECT_EQ(model.shape.has_value(), facts_of(*model.config).chain.has_value()) << name;
    EXPECT_EQ(model.longest_sequence(), max_sequence(*model.config)) << name;
  }
}

TEST(PlanModel, ShapesCountBiasesAndTiedTables) {
  LlamaConfig llama = llama_preset("llama-tiny");
  llama.attention_bias = true;
  llama.tie_word_embeddings = true;
  EXPECT_EQ(plan_model("x", llama).num_parameters(), build_spec(llama, WorkSize{}).num_parameters());
  llama.attention_bias = false;
  llama.mlp_bias = true;
  llama.head_dim = 24;
  EXPECT_EQ(plan_model("x", llama).num_parameters(), build_spec(llama, WorkSize{}).num_parameters());
  Gpt2Config gpt2 = gpt2_preset("gpt2-tiny");
  gpt2.tie_word_embeddings = false;
  gpt2.intermediate_size = 100;
  EXPECT_EQ(plan_model("x", gpt2).num_parameters(), build_spec(gpt2, WorkSize{}).num_parameters());
}

TEST(PlanModel, PresetsHavePublishedSizes) {
  const auto billions = [](const char* name) {
    return static_cast<double>(find_plan_model(name).num_parameters()) / 1e9;
  };
  EXPECT_NEAR(billions("llama3-8b"), 8.030, 0.0005);
  EXPECT_NEAR(billions("llama3-70b"), 70.554, 0.0005);
  EXPECT_NEAR(billions("llama3-405b"), 405.853, 0.0005);
  EXPECT_NEAR(billions("gpt-39.1b"), 39.1, 0.05);
  EXPECT_NEAR(billions("gpt-1t"), 1008.0, 0.05);
  EXPECT_EQ(find_plan_model("mixtral-8x7b").num_parameters(), 46'702'792'704);
  EXPECT_EQ(find_plan_model("mixtral-8x7b").shape->active_parameters(), 12'879'925'248);
  EXPECT_EQ(find_plan_model("mixtral-8x22b").num_parameters(), 140'620'634'112);
}

TEST(PlanModel, FlopsAreThoseOfTheSpec) {
  for (const char* name :
       {"llama-tiny", "llama3-8b", "gpt2-tiny", "gpt3-175b", "bert-base-cased", "encoder-lm", "trimodal-tiny"}) {
    const PlanModel model = find_plan_model(name);
    const double spec = totals(build_spec(*model.config, WorkSize{.rows = 1, .sequence = 64})).total_flops;
    EXPECT_DOUBLE_EQ(model_flops(model, 64, true), spec) << name;
  }
  LlamaConfig frozen = llama_preset("llama-tiny");
  frozen.freeze = {"layers.*"};
  const double spec = totals(build_spec(frozen, WorkSize{.rows = 1, .sequence = 64})).total_flops;
  EXPECT_EQ(model_flops(plan_model("x", frozen), 64, true), spec);
  EXPECT_LT(spec, model_flops(find_plan_model("llama-tiny"), 64, true));
}

// Korthikanti 2022, equation 7: 72 B L s h^2 (1 + s / 6h + V / 12hL).
TEST(PlanModel, FlopsOfGptAreThePublishedOnes) {
  const double layers = 96, h = 12288, s = 2048, vocab = 51200;
  const double published = 72 * layers * s * h * h * (1 + s / (6 * h) + vocab / (12 * h * layers));
  const PlanModel model = find_plan_model("gpt3-175b");
  EXPECT_NEAR(model_flops(model, 2048, false) / published, 1, 1e-12);
  const double causal_half = 6 * layers * s * s * h;
  EXPECT_NEAR(model_flops(model, 2048, true), model_flops(model, 2048, false) - causal_half, 1e-9 * published);
}

// Narayanan 2021, table 1: seconds from FLOPs with full recompute, 96 B s L h^2 (1 + s / 6h + V / 16Lh), and TFLOP/s.
// Of a model's FLOPs, recompute repeats the layers' forward: a third of all but the head's.
TEST(PlanModel, SecondsFollowFromPublishedTeraflops) {
  struct Row {
    const char* name;
    double batch, cards, teraflops, seconds;
  };
  for (const Row& row :
       {Row{"gpt-1.7b", 512, 32, 137, 3.53}, Row{"gpt-3.6b", 512, 64, 138, 3.70}, Row{"gpt-7.5b", 512, 128, 142, 3.70},
        Row{"gpt-39.1b", 1536, 512, 138, 14.45}, Row{"gpt-76.1b", 1792, 1024, 140, 16.06},
        Row{"gpt-310.1b", 2160, 1920, 155, 37.61}, Row{"gpt-1t", 3072, 3072, 163, 102.6}}) {
    const PlanModel model = find_plan_model(row.name);
    const double head = 6.0 * 2048 * static_cast<double>(model.shape->hidden * model.shape->vocab);
    const double executed = (model_flops(model, 2048, false) - head) * 4 / 3 + head;
    EXPECT_NEAR(executed * row.batch / (row.cards * row.teraflops * 1e12) / row.seconds, 1, 0.0015) << row.name;
  }
}

TEST(PlanModel, ReadsModelSectionsAndRunConfigurations) {
  EXPECT_EQ(model_of_file(R"({"preset": "llama-tiny", "vocab_size": 300})").shape->vocab, 300);
  EXPECT_EQ(model_of_file(R"({"kind": "bert"})").name, "model");
  const PlanModel run = model_of_file(R"({"mesh": "dp=2", "model": {"preset": "gpt2-tiny"}, "data": {}})", "run.json");
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.config, ModelConfig(gpt2_preset("gpt2-tiny")));
}

TEST(PlanModel, ReadsSizesOfGpt3Style) {
  const PlanModel model =
      model_of_file(R"({"kind": "gpt", "hidden_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 64})");
  EXPECT_EQ(model.num_parameters(), find_plan_model("gpt-22b").num_parameters());
  const auto config = get<Gpt2Config>(*model.config);
  EXPECT_EQ(config.intermediate_size, 4 * 6144);
  EXPECT_TRUE(config.tie_word_embeddings);
  const PlanModel other = model_of_file(
      R"({"kind": "gpt", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "intermediate_size": 99,
          "max_position_embeddings": 32, "tie_word_embeddings": false})");
  EXPECT_EQ(other.shape->inner, 99);
  EXPECT_EQ(other.shape->positions, 32);
  EXPECT_FALSE(other.shape->tied);
}

TEST(PlanModel, ReadsMixturesOfExpertsAsShapes) {
  const PlanModel model = model_of_file(
      R"({"kind": "moe", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 32768,
          "num_experts": 8, "experts_per_token": 2})");
  EXPECT_FALSE(model.config.has_value());
  EXPECT_EQ(model.shape, find_plan_model("mixtral-8x7b").shape);
  const PlanModel shared = model_of_file(
      R"({"kind": "moe", "preset": "llama-tiny", "num_experts": 4, "experts_per_token": 1,
          "expert_intermediate_size": 32, "shared_intermediate_size": 16})");
  const PlanModel dense = find_plan_model("llama-tiny");
  EXPECT_EQ(shared.num_parameters() - dense.num_parameters(), 2 * (64 * 4 + 3 * 64 * (4 * 32 + 16) - 3 * 64 * 192));
  EXPECT_EQ(shared.longest_sequence(), 512);
}

TEST(PlanModel, RoutedTokensAreMultipliedWithTheirExpertsAlone) {
  const PlanModel model = find_plan_model("mixtral-8x7b");
  const auto& shape = *model.shape;
  const double s = 1024;
  const double norms = static_cast<double>((2 * shape.layers + 1) * shape.hidden);
  const double multiplied =
      static_cast<double>(shape.active_parameters() - shape.vocab * shape.hidden) - norms;  // the head's words remain
  const double attention = 4 * s * s * static_cast<double>(shape.layers * shape.query_size());
  EXPECT_NEAR(model_flops(model, 1024, false) / (3 * (2 * s * multiplied + attention)), 1, 1e-12);
}

TEST(PlanModel, ReadsHuggingFaceFolders) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4})";
  const PlanModel model = find_plan_model(folder.path().string());
  EXPECT_EQ(model.name, folder.path().filename().string());
  EXPECT_EQ(model.shape->layers, 2);
  EXPECT_EQ(find_plan_model((folder / "config.json").string()).config, model.config);
  EXPECT_EQ(find_plan_model(folder.path().string() + "/").name, model.name);
}

TEST(PlanModel, SuggestsTheNearestName) {
  const std::string text = error_text<ConfigError>([] { find_plan_model("gpt3-157b"); });
  EXPECT_TRUE(text.starts_with("unknown model \"gpt3-157b\"\n  fix: did you mean \"gpt3-175b\"? (one of llama2-7b, "))
      << text;
  EXPECT_TRUE(text.ends_with("); a file of one's own is named by a path that ends in .json")) << text;
  EXPECT_NE(text.find("qwen2-moe-tiny"), std::string::npos) << text;
}

TEST(PlanModel, APathThatTheSystemRefusesIsNotAnUnknownName) {
  const std::string name(300, 'n');
  EXPECT_EQ(error_text<IoError>([&] { find_plan_model(name); }),
            name + ": File name too long\n  fix: use a shorter path");
}

TEST(PlanModel, RefusesWrongFiles) {
  EXPECT_EQ(
      refusal_of_file(R"({"kind": "gtp"})"),
      fmt::format("model.json:1:10: kind: unknown model kind \"gtp\"\n  fix: did you mean \"gpt\"? (one of gpt, moe, "
                  "{})",
                  fmt::join(family_names(), ", ")));
  EXPECT_EQ(refusal_of_file(R"({"kind": "gpt", "hidden_size": 64, "num_attention_heads": 4})"),
            "model.json:1:1: missing key num_hidden_layers (an integer)\n  fix: add \"num_hidden_layers\"");
  EXPECT_EQ(refusal_of_file(R"({"kind": "moe", "num_experts": 8, "experts_per_token": 9})"),
            "model.json:1:56: experts_per_token: 9 is not between 1 and 8\n  fix: set experts_per_token to 8 or less");
  EXPECT_EQ(refusal_of_file(R"({"preset": "llama-tiny", "num_expert": 8})"),
            "model.json:1:26: unknown key num_expert\n  fix: use one of: attention_bias, attention_dropout, freeze, "
            "head_dim, hidden_size, initializer_range, intermediate_size, kind, max_position_embeddings, mlp_bias, "
            "num_attention_heads, num_hidden_layers, num_key_value_heads, path, preset, rms_norm_eps, rope_scaling, "
            "rope_theta, tie_word_embeddings, vocab_size");
  EXPECT_EQ(error_text<ConfigError>([] { find_plan_model("no/such.json"); }),
            "cannot read no/such.json: No such file or directory\n  fix: name a JSON file that exists and can be read");
}

}  // namespace plan_model_test
}  // namespace orthant
