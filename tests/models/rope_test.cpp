#include "orthant/models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/model_text.h"
#include "orthant/models/llama/config.h"

namespace orthant {
namespace rope_test {

using Kind = RopeScaling::Kind;

// Heads of 16 channels, as transformers 5.22 gives them for the same configuration.
void expect_frequencies(const RopeFrequencies& actual, double magnitude, const std::vector<double>& inverse) {
  ASSERT_EQ(actual.inverse.size(), inverse.size());
  EXPECT_NEAR(actual.magnitude, magnitude, 1e-12);
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    EXPECT_NEAR(actual.inverse[i] / inverse[i], 1, 1e-6) << "frequency " << i;
  }
}

RopeScaling yarn(std::int64_t original) {
  RopeScaling scaling;
  scaling.kind = Kind::yarn;
  scaling.factor = 4;
  scaling.original_max_position_embeddings = original;
  return scaling;
}

TEST(RopeFrequencies, WithoutScalingArePowersOfTheta) {
  const RopeFrequencies plain = rope_frequencies({}, 10000, 16, 64, 10);
  expect_frequencies(plain, 1, {1, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278});
  EXPECT_EQ(plain.inverse[4], 0.01) << "computed in double";
  EXPECT_EQ(rope_frequencies({}, 10000, 6, 64, 10).inverse.size(), 3U);
}

TEST(RopeFrequencies, LinearDividesAll) {
  RopeScaling scaling;
  scaling.kind = Kind::linear;
  scaling.factor = 2.5;
  expect_frequencies(rope_frequencies(scaling, 10000, 16, 64, 10), 1,
                     {0.4, 0.1264911, 0.04, 0.01264911, 0.004, 0.001264911, 0.0004, 0.0001264911});
}

TEST(RopeFrequencies, DynamicDependsOnTheSequenceBeyondThePositions) {
  RopeScaling scaling;
  scaling.kind = Kind::dynamic;
  scaling.factor = 3;
  expect_frequencies(rope_frequencies(scaling, 10000, 16, 64, 10), 1,
                     {1, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278});
  expect_frequencies(rope_frequencies(scaling, 10000, 16, 64, 100), 1,
                     {1, 0.2745772, 0.07539265, 0.0207011, 0.005684052, 0.001560711, 0.0004285357, 0.0001176661});
}

TEST(RopeFrequencies, Llama3StretchesLongWavesSmoothly) {
  RopeScaling scaling;
  scaling.kind = Kind::llama3;
  scaling.factor = 8;
  scaling.original_max_position_embeddings = 512;
  const std::vector<double> expected = {1,           0.1939228,   0.02734413, 0.0009115831, 0.0001767767, 3.428102e-05,
                                        6.64787e-06, 1.289173e-06};
  expect_frequencies(rope_frequencies(scaling, 500000, 16, 4096, 10), 1, expected);
  scaling.original_max_position_embeddings = 0;
  expect_frequencies(rope_frequencies(scaling, 500000, 16, 512, 10), 1, expected);
}

TEST(RopeFrequencies, YarnStretchesAlongARampAndScalesTheMagnitude) {
  expect_frequencies(rope_frequencies(yarn(1024), 10000, 16, 4096, 10), 1.138629436111989,
                     {1, 0.3162278, 0.08125, 0.01976424, 0.004375, 0.0007905695, 0.00025, 7.905695e-05});
  RopeScaling exact = yarn(1024);
  exact.truncate = false;
  exact.attention_factor = 0.7;
  exact.beta_fast = 16;
  exact.beta_slow = 2;
  expect_frequencies(rope_frequencies(exact, 10000, 16, 4096, 10), 0.7,
                     {1, 0.3162278, 0.1, 0.0187018, 0.0025, 0.0007905695, 0.00025, 7.905695e-05});
  RopeScaling scaled = yarn(512);
  scaled.factor = 0;
  scaled.mscale = 0.8;
  scaled.mscale_all_dim = 0.5;
  expect_frequencies(rope_frequencies(scaled, 10000, 16, 4096, 10), 1.0565079928608092,
                     {1, 0.2470529, 0.05625, 0.01087033, 0.00125, 0.0003952847, 0.000125, 3.952847e-05});
  expect_frequencies(rope_frequencies(yarn(4), 10000, 16, 16, 10), 1.138629436111989,
                     {1, 0.07905694, 0.025, 0.007905695, 0.0025, 0.0007905695, 0.00025, 7.905695e-05});
}

RopeScaling scaling_of(const std::string& text) {
  return llama_of(R"({"kind": "llama", "rope_scaling": )" + text + "}").rope_scaling;
}

TEST(RopeScaling, ReadsEachKind) {
  EXPECT_EQ(scaling_of("null"), RopeScaling{});
  EXPECT_EQ(scaling_of(R"({"rope_type": "default"})"), RopeScaling{});
  RopeScaling linear;
  linear.kind = Kind::linear;
  linear.factor = 2;
  EXPECT_EQ(scaling_of(R"({"type": "linear", "factor": 2})"), linear);
  RopeScaling llama3;
  llama3.kind = Kind::llama3;
  llama3.factor = 8;
  llama3.original_max_position_embeddings = 8192;
  llama3.high_freq_factor = 5;
  EXPECT_EQ(scaling_of(R"({"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8192,
                           "low_freq_factor": 1.0, "high_freq_factor": 5})"),
            llama3);
  RopeScaling yarn_scaling = yarn(0);
  yarn_scaling.attention_factor = 0.5;
  yarn_scaling.beta_fast = 16;
  yarn_scaling.truncate = false;
  EXPECT_EQ(scaling_of(R"({"rope_type": "yarn", "factor": 4, "attention_factor": 0.5, "beta_fast": 16,
                           "beta_slow": null, "truncate": false})"),
            yarn_scaling);
  EXPECT_EQ(scaling_of(R"({"rope_type": "yarn"})").factor, 0) << "follows from the positions";
}

TEST(RopeScaling, OverridesThePreset) {
  const LlamaConfig config = llama_of(R"({"preset": "llama3.1-8b", "rope_scaling": {"factor": 16}})");
  EXPECT_EQ(config.rope_scaling.kind, Kind::llama3);
  EXPECT_EQ(config.rope_scaling.factor, 16);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 8192);
  EXPECT_EQ(llama_of(R"({"preset": "llama3.1-8b", "rope_scaling": null})").rope_scaling, RopeScaling{});
  const LlamaConfig other =
      llama_of(R"({"preset": "llama3.1-8b", "rope_scaling": {"rope_type": "linear", "factor": 2}})");
  EXPECT_EQ(other.rope_scaling.kind, Kind::linear);
  EXPECT_EQ(other.rope_scaling.original_max_position_embeddings, 0);
}

TEST(RopeScaling, LinearAndDynamicReadLongerTexts) {
  const LlamaConfig config = llama_of(R"({"kind": "llama", "max_position_embeddings": 100,
                                          "rope_scaling": {"rope_type": "dynamic", "factor": 2.5}})");
  EXPECT_EQ(max_sequence(config), 250);
  EXPECT_EQ(max_sequence(model_of(R"({"preset": "llama3.1-8b"})")), 131072);
}

TEST(RopeScaling, RefusesWhatDoesNotFit) {
  const auto refusal = [](const std::string& text) {
    return model_refusal("{\"kind\": \"llama\", \"rope_scaling\":\n" + text + "}");
  };
  EXPECT_EQ(refusal(R"({"rope_type": "longrope", "factor": 2})"),
            "model.json:2:15: rope_scaling.rope_type: unknown value \"longrope\"\n"
            "  fix: one of default, linear, dynamic, llama3, yarn");
  EXPECT_EQ(refusal(R"({"type": "linear"})"),
            "model.json:2:1: missing key rope_scaling.factor (a number)\n  fix: add \"factor\"");
  EXPECT_EQ(refusal(R"({"type": "linear", "factor": 0})"),
            "model.json:2:30: rope_scaling.factor: 0 is not a positive number\n  fix: set factor above 0");
  EXPECT_EQ(refusal(R"({"type": "linear", "factor": 2, "low_freq_factor": 1})"),
            "model.json:2:33: unknown key rope_scaling.low_freq_factor\n  fix: use one of: factor, type");
  EXPECT_EQ(refusal(R"({"type": "llama3", "factor": 2, "high_freq_factor": 1})"),
            "model.json:2:53: rope_scaling.high_freq_factor: 1 is not above low_freq_factor 1\n"
            "  fix: set high_freq_factor above low_freq_factor (Llama 3.1 has 4 and 1)");
  EXPECT_EQ(refusal(R"({"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2})"),
            "model.json:2:44: rope_scaling.beta_fast: 1 is below beta_slow 2\n"
            "  fix: set beta_fast to beta_slow or more (usual are 32 and 1)");
  EXPECT_EQ(refusal(R"({"type": "dynamic", "factor": 2}, "head_dim": 2)"),
            "model.json:2:47: head_dim: heads of 2 channels cannot have dynamic rope_scaling\n"
            "  fix: set head_dim to 4 or more, or another rope_scaling.rope_type");
  EXPECT_EQ(refusal(R"({"type": "yarn", "factor": 2}, "rope_theta": 1)"),
            "model.json:2:46: rope_theta: 1 is not above 1, as yarn rope_scaling needs\n"
            "  fix: set rope_theta above 1 (usual is 10000)");
  LlamaConfig config;
  config.rope_scaling = yarn(-1);
  EXPECT_EQ(error_text<ConfigError>([&] { llama_spec(config, work_of(1, 1)); }),
            "llama.rope_scaling.original_max_position_embeddings: -1 is not between 0 and 2147483647\n"
            "  fix: set original_max_position_embeddings to 0 or more");
}

}  // namespace rope_test
}  // namespace orthant
