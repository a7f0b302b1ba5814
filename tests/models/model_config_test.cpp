#include "orthant/models/model_config.h"

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
  EXPECT_EQ(model_refusal(R"({"kind": "lama"})"),
            "model.json:1:10: kind: unknown model kind \"lama\"\n  fix: did you mean \"llama\"? (one of llama, "
            "bert, trimodal, gpt2, encoder_lm, qwen3, mistral, mixtral, qwen3_moe, qwen2_moe)");
  EXPECT_EQ(model_refusal("{}"), "model.json:1:1: missing key kind (a string)\n  fix: add \"kind\"");
}

TEST(ModelConfig, RefusesPresetsThatAreNoneOrOfAnotherKind) {
  EXPECT_EQ(
      model_refusal(R"({"preset": "llama-tinny"})"),
      "model.json:1:12: preset: unknown preset \"llama-tinny\"\n  fix: did you mean \"llama-tiny\"? (one of "
      "llama2-7b, llama2-13b, llama2-70b, llama3-8b, llama3-70b, llama3.1-8b, llama3.1-70b, llama3-405b, llama-1b, "
      "llama-tiny, llama-16, bert-base-cased, bert-large-cased, bert-base-uncased, bert-large-uncased, roberta-base, "
      "roberta-large, bert-tiny, trimodal-tiny, trimodal-16, gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt2-tiny, "
      "gpt-1.7b, gpt-3.6b, gpt-7.5b, gpt-18.4b, gpt-22b, gpt-39.1b, gpt-76.1b, gpt-145.6b, gpt3-175b, gpt-310.1b, "
      "mt-nlg-530b, gpt-1t, encoder-lm, encoder-lm-tiny, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, "
      "qwen3-32b, qwen3-tiny, mistral-7b, mistral-tiny, mixtral-8x7b, mixtral-8x22b, mixtral-tiny, qwen3-30b-a3b, "
      "qwen3-235b-a22b, qwen3-moe-tiny, qwen1.5-moe-a2.7b, qwen2-57b-a14b, qwen2-moe-tiny)");
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
