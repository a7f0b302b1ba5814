#include "orthant/models/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "models/model_text.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace model_config_test {

TEST(ModelConfig, ReadsTheKindThatIsNamed) {
  EXPECT_EQ(model_kind(model_of(R"({"kind": "llama"})")), "llama");
  for (const auto* kind : {"trimodal", "bert", "gpt2", "encoder_lm"}) {
    EXPECT_EQ(model_kind(model_of(std::string("{\"kind\": \"") + kind + "\"}")), kind);
  }
}

TEST(ModelConfig, TakesTheKindFromThePreset) {
  for (const Family* family : families()) {
    for (const auto& name : preset_names(*family)) {
      const ModelConfig config = model_of("{\"preset\": \"" + name + "\"}");
      EXPECT_EQ(model_kind(config), family->name);
      EXPECT_NO_THROW(build_spec(config, work_of(1, 1)).check()) << name;
    }
  }
  EXPECT_EQ(llama_of(R"({"preset": "llama-tiny"})"), llama_preset("llama-tiny"));
}

TEST(ModelConfig, AnswersForEveryKind) {
  const ModelConfig llama = model_of(R"({"preset": "llama-1b", "freeze": ["embed.weight"]})");
  EXPECT_EQ(vocab_size(llama), 32000);
  EXPECT_EQ(max_sequence(llama), 2048);
  EXPECT_EQ(frozen_patterns(llama), (std::vector<std::string>{"embed.weight"}));
  const ModelConfig trimodal = model_of(R"({"kind": "trimodal", "primary": {"preset": "roberta-base"}})");
  EXPECT_EQ(vocab_size(trimodal), 50265);
  EXPECT_EQ(max_sequence(trimodal), 512);
  EXPECT_TRUE(frozen_patterns(trimodal).empty());
  const ModelConfig bert = model_of(R"({"preset": "roberta-base"})");
  EXPECT_EQ(vocab_size(bert), 50265);
  EXPECT_EQ(max_sequence(bert), 512);
  EXPECT_EQ(vocab_size(model_of(R"({"preset": "gpt2"})")), 50257);
  EXPECT_EQ(max_sequence(model_of(R"({"preset": "gpt2"})")), 1024);
  EXPECT_EQ(max_sequence(model_of(R"({"preset": "encoder-lm"})")), 5000);
}

TEST(ModelConfig, RefusesUnknownKinds) {
  EXPECT_EQ(
      model_refusal(R"({"kind": "lama"})"),
      fmt::format("model.json:1:10: kind: unknown model kind \"lama\"\n  fix: did you mean \"llama\"? (one of {})",
                  fmt::join(family_names(), ", ")));
  EXPECT_EQ(model_refusal("{}"), "model.json:1:1: missing key kind (a string)\n  fix: add \"kind\"");
}

TEST(ModelConfig, RefusesPresetsThatAreNoneOrOfAnotherKind) {
  std::vector<std::string> presets;
  for (const Family* family : families()) {
    for (const auto& preset : family->presets()) presets.push_back(preset.name);
  }
  EXPECT_EQ(model_refusal(R"({"preset": "llama-tinny"})"),
            fmt::format("model.json:1:12: preset: unknown preset \"llama-tinny\"\n  fix: did you mean \"llama-tiny\"? "
                        "(one of {})",
                        fmt::join(presets, ", ")));
  EXPECT_EQ(model_refusal(R"({"kind": "trimodal", "preset": "llama-tiny"})"),
            "model.json:1:32: preset: \"llama-tiny\" is a llama preset; a trimodal preset is expected here\n"
            "  fix: one of trimodal-tiny, trimodal-16");
}

TEST(ModelConfig, LeavesUnknownKeysToTheReadersEnd) {
  JsonReader root(JsonDocument::parse(R"({"model": {"kind": "llama", "vocab": 3}})", {.source = "model.json"}));
  EXPECT_NO_THROW(read_model(root.object("model")));
  EXPECT_EQ(error_text<ConfigError>([&] { root.finish(); }),
            "model.json:1:29: unknown key model.vocab\n  fix: use \"vocab_size\"");
}

TEST(ModelConfig, FreezesWhatTheConfigurationNames) {
  const GraphSpec spec =
      build_spec(model_of(R"({"preset": "trimodal-tiny", "freeze": ["primary.*", "*.bias"]})"), work_of(1, 1));
  EXPECT_FALSE(spec.parameter("primary.embed.word.weight").trainable);
  EXPECT_FALSE(spec.parameter("fusion.output.bias").trainable);
  EXPECT_TRUE(spec.parameter("secondary.embed.word.weight").trainable);
  EXPECT_EQ(error_text<ConfigError>([&] {
              build_spec(model_of(R"({"preset": "llama-tiny", "freeze": ["embed.wieght"]})"), work_of(1, 1));
            }),
            "freeze: pattern \"embed.wieght\" matches no parameter of llama\n  fix: did you mean \"embed.weight\"?");
}

}  // namespace model_config_test
}  // namespace orthant
