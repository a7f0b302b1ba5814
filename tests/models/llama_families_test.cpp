// Qwen3 and Mistral: models that are a Llama but for an option.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "models/model_text.h"
#include "models/small_models.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace llama_families_test {

LlamaConfig family_of(std::string_view text) {
  return get<LlamaConfig>(model_of(text));
}

LlamaConfig folder_of(std::string_view text) {
  return get<LlamaConfig>(parse_hugging_face_config(text, "config.json"));
}

std::string folder_refusal(std::string_view text) {
  return error_text<DataError>([&] { folder_of(text); });
}

LlamaConfig small_qwen3() {
  LlamaConfig config = test::small_llama();
  config.variant = &kQwen3;
  config.head_dim = 6;
  return config;
}

TEST(LlamaFamilies, HaveTheDefaultsOfHuggingFace) {
  for (const LlamaConfig& qwen3 : {family_of(R"({"kind": "qwen3"})"), folder_of(R"({"model_type": "qwen3"})")}) {
    EXPECT_EQ(model_kind(qwen3), "qwen3");
    EXPECT_EQ(qwen3.vocab_size, 151936);
    EXPECT_EQ(qwen3.num_key_value_heads, 32);
    EXPECT_EQ(qwen3.head_dim, 128);
    EXPECT_EQ(qwen3.intermediate_size, 22016);
    EXPECT_EQ(qwen3.max_position_embeddings, 32768);
    EXPECT_EQ(qwen3.sliding_window, 0);
  }
  for (const LlamaConfig& mistral : {family_of(R"({"kind": "mistral"})"), folder_of(R"({"model_type": "mistral"})")}) {
    EXPECT_EQ(model_kind(mistral), "mistral");
    EXPECT_EQ(mistral.num_key_value_heads, 8);
    EXPECT_EQ(mistral.head_dim, 128);
    EXPECT_EQ(mistral.intermediate_size, 14336);
    EXPECT_EQ(mistral.max_position_embeddings, 131072);
    EXPECT_EQ(mistral.sliding_window, 4096);
  }
}

TEST(LlamaFamilies, HaveKeysOfTheirOwn) {
  EXPECT_EQ(family_of(R"({"kind": "qwen3", "hidden_size": 96, "num_attention_heads": 4})").head_dim, 128);
  EXPECT_TRUE(family_of(R"({"preset": "qwen3-tiny", "attention_bias": true})").attention_bias);
  EXPECT_EQ(family_of(R"({"preset": "mistral-tiny", "sliding_window": null})").sliding_window, 0);
  EXPECT_EQ(family_of(R"({"preset": "mistral-tiny", "sliding_window": 3})").sliding_window, 3);
  EXPECT_EQ(family_of(R"({"preset": "mistral-tiny", "num_attention_heads": 8})").head_dim, 8);
  EXPECT_NE(model_refusal(R"({"kind": "llama", "sliding_window": 4})").find("unknown key sliding_window"),
            std::string::npos);
  EXPECT_NE(model_refusal(R"({"kind": "qwen3", "mlp_bias": true})").find("unknown key mlp_bias"), std::string::npos);
  EXPECT_NE(model_refusal(R"({"kind": "mistral", "attention_bias": true})").find("unknown key attention_bias"),
            std::string::npos);
  EXPECT_NE(model_refusal(R"({"kind": "mistral", "sliding_window": -1})").find("sliding_window: -1"),
            std::string::npos);
  EXPECT_EQ(model_refusal(R"({"kind": "qwen3", "preset": "llama-tiny"})"),
            "model.json:1:29: preset: \"llama-tiny\" is a llama preset; a qwen3 preset is expected here\n"
            "  fix: one of qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, qwen3-tiny");
}

TEST(LlamaFamilies, FoldersThatAskForMoreAreRefused) {
  EXPECT_EQ(folder_refusal(R"({"model_type": "qwen3", "use_sliding_window": true})"),
            "config.json:1:47: use_sliding_window: is true: a sliding window in some of the layers is not supported\n"
            "  fix: this model cannot be computed here: use one without it");
  EXPECT_EQ(folder_refusal(R"({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]})"),
            "config.json:1:40: layer_types: has sliding_attention: all layers are full_attention here\n"
            "  fix: this model cannot be computed here: use one without it");
  EXPECT_EQ(folder_refusal(R"({"model_type": "mistral", "sliding_window": 0})"),
            "config.json:1:45: sliding_window: is 0: a token sees at least itself\n"
            "  fix: a window of 1 token or more, or null for none, can be read");
  EXPECT_EQ(folder_of(R"({"model_type": "mistral", "sliding_window": null})").sliding_window, 0);
}

TEST(LlamaFamilies, AreWrittenAsTheyAreRead) {
  std::vector<LlamaConfig> configs = {llama_preset("qwen3-tiny"), llama_preset("mistral-tiny"), small_qwen3()};
  configs[0].attention_bias = true;
  configs.push_back(configs[1]);
  configs.back().sliding_window = 0;
  configs.back().attention_dropout = 0.1;
  for (const LlamaConfig& config : configs) {
    const auto text = hugging_face_config_text(config, HuggingFaceHead::language_model, DType::float32);
    EXPECT_EQ(folder_of(text), config) << text;
    const std::string name = config.norms_heads() ? "Qwen3ForCausalLM" : "MistralForCausalLM";
    EXPECT_NE(text.find(name), std::string::npos) << text;
  }
}

TEST(LlamaFamilies, NormsOfHeadsHaveTwoWeightsOfOneHead) {
  const GraphSpec spec = llama_spec(small_qwen3(), test::small_work());
  EXPECT_EQ(spec.name, "qwen3");
  for (const auto* name : {"layers.0.attention.q_norm.weight", "layers.1.attention.k_norm.weight"}) {
    const ParameterSpec& parameter = spec.parameter(name);
    EXPECT_EQ(parameter.shape, Shape{6}) << name;
    EXPECT_EQ(parameter.init.kind, Init::Kind::ones) << name;
    EXPECT_FALSE(parameter.tp || parameter.decay) << name;
  }
  // A layer keeps the projection before its norms, and a number for each of 4 + 2 heads.
  const auto kept = [](const GraphSpec& graph) { return graph.unit("layers.0").cost.kept_bytes[0]; };
  LlamaConfig without = small_qwen3();
  without.variant = &kLlama;
  EXPECT_EQ(kept(spec) - kept(llama_spec(without, test::small_work())), 6 * (8 * 6 + 6) * 4);
}

// Half of all pairs under a causal mask; of a window of 4 in 16 tokens 4/16 - (4/16)^2 / 2.
TEST(LlamaFamilies, AWindowCostsWhatItLeaves) {
  LlamaConfig config = llama_preset("mistral-tiny");
  const auto flops = [&](std::int64_t window) {
    config.sliding_window = window;
    return llama_spec(config, {.rows = 1, .sequence = 16}).unit("layers.0").cost.forward_flops;
  };
  const double all = 4.0 * 16 * 16 * 64;
  EXPECT_DOUBLE_EQ(flops(0) - flops(4), all * (0.5 - 0.21875));
  for (const std::int64_t window : {16, 17, 4096}) EXPECT_EQ(flops(window), flops(0)) << window;
}

}  // namespace llama_families_test
}  // namespace orthant
