#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/llama/config.h"

namespace orthant {
namespace hugging_face_rewrite_test {

using Json = nlohmann::ordered_json;

constexpr const char* kOlderLlama =
    R"({"eos_token_id": [7, 9],   "model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": 500, "rope_scaling": null,
  "torch_dtype": "bfloat16", "own": {"b": 1, "a": null}, "transformers_version": "4.31.0"})";

ModelConfig config_of(std::string_view text) {
  return parse_hugging_face_config(text, "config.json");
}

std::string rewritten(std::string_view text, const ModelConfig& config, const ConfigChanges& changes = {}) {
  return rewritten_hugging_face_config(text, "config.json", config, changes);
}

Json with_changes(std::string_view text, const ConfigChanges& changes) {
  return Json::parse(rewritten(text, config_of(text), changes));
}

TEST(HuggingFaceRewrite, LeavesTheTextWhereNothingChanges) {
  EXPECT_EQ(rewritten(kOlderLlama, config_of(kOlderLlama)), kOlderLlama);
  EXPECT_EQ(rewritten(kOlderLlama, config_of(kOlderLlama), {HuggingFaceHead::language_model, DType::bfloat16}),
            kOlderLlama);
}

TEST(HuggingFaceRewrite, ChangesKeysOfTheModelAndLeavesOrderAndOthers) {
  auto config = get<LlamaConfig>(config_of(kOlderLlama));
  config.attention_dropout = 0.5;
  auto expected = Json::parse(kOlderLlama);
  expected["attention_dropout"] = 0.5;
  EXPECT_EQ(rewritten(kOlderLlama, config), expected.dump(2) + "\n");
}

TEST(HuggingFaceRewrite, ChangesKeysOfOneMeaningTogether) {
  auto llama = get<LlamaConfig>(config_of(kOlderLlama));
  llama.rope_theta = 700;
  const auto found = Json::parse(rewritten(kOlderLlama, llama));
  EXPECT_EQ(found["rope_theta"], 700);
  EXPECT_EQ(found["rope_parameters"]["rope_theta"], 700);
  EXPECT_EQ(get<LlamaConfig>(config_of(found.dump())).rope_theta, 700);

  const std::string text = R"({"model_type": "gpt2", "hidden_size": 24, "num_attention_heads": 2, "n_head": 2})";
  auto gpt2 = get<Gpt2Config>(config_of(text));
  gpt2.hidden_size = 48;
  const auto wider = Json::parse(rewritten(text, gpt2));
  EXPECT_EQ(wider["n_embd"], 48);
  EXPECT_FALSE(wider.contains("hidden_size"));
  EXPECT_EQ(wider["num_attention_heads"], 2);
}

TEST(HuggingFaceRewrite, ChangesTheDtypeUnderTheNamesThatAreThere) {
  const ConfigChanges narrow{.dtype = DType::float16};
  const auto older = with_changes(kOlderLlama, narrow);
  EXPECT_EQ(older["torch_dtype"], "float16");
  EXPECT_FALSE(older.contains("dtype"));
  EXPECT_EQ(with_changes(R"({"model_type": "bert", "dtype": "float32"})", narrow)["dtype"], "float16");
  const std::string without = R"({"model_type": "bert", "torch_dtype": null})";
  EXPECT_EQ(rewritten(without, config_of(without), narrow), without);
}

TEST(HuggingFaceRewrite, ChangesTheClassWhenTheHeadIsAnother) {
  const auto written = [](const std::string& type, const std::string& name, HuggingFaceHead head) {
    const auto text = Json{{"model_type", type}, {"architectures", {name}}}.dump();
    return with_changes(text, {.head = head})["architectures"][0].get<std::string>();
  };
  const auto none = HuggingFaceHead::none;
  const auto language_model = HuggingFaceHead::language_model;
  EXPECT_EQ(written("bert", "BertModel", none), "BertModel");
  EXPECT_EQ(written("bert", "BertModel", language_model), "BertForMaskedLM");
  EXPECT_EQ(written("bert", "BertForSequenceClassification", none), "BertModel");
  EXPECT_EQ(written("bert", "BertForPreTraining", language_model), "BertForMaskedLM");
  EXPECT_EQ(written("gpt2", "GPT2LMHeadModel", language_model), "GPT2LMHeadModel");
  EXPECT_EQ(written("llama", "OwnForCausalLM", language_model), "OwnForCausalLM");
  EXPECT_EQ(written("roberta", "RobertaModel", language_model), "RobertaForMaskedLM");
  EXPECT_EQ(written("camembert", "CamembertModel", language_model), "CamembertForMaskedLM");
  EXPECT_EQ(written("xlm-roberta", "XLMRobertaForMaskedLM", none), "XLMRobertaModel");
  const std::string silent = R"({"model_type": "bert"})";
  EXPECT_EQ(rewritten(silent, config_of(silent), {.head = language_model}), silent);
}

TEST(HuggingFaceRewrite, SaysWhichHeadAFileHas) {
  const auto found = [](const Json& architectures) {
    return hugging_face_head(Json{{"model_type", "bert"}, {"architectures", architectures}}.dump(), "config.json");
  };
  EXPECT_EQ(hugging_face_head(kOlderLlama, "config.json"), HuggingFaceHead::language_model);
  EXPECT_EQ(found({"GPT2Model"}), HuggingFaceHead::none);
  EXPECT_EQ(found({"BertForTokenClassification"}), std::nullopt);
  EXPECT_EQ(found(Json::array()), std::nullopt);
  EXPECT_EQ(found({7}), std::nullopt);
  EXPECT_EQ(found(nullptr), std::nullopt);
}

TEST(HuggingFaceRewrite, GivesAnotherModelItsClass) {
  const std::string text = R"({"model_type": "bert", "architectures": ["BertForMaskedLM"]})";
  const auto found = Json::parse(rewritten(text, LlamaConfig(), {.head = HuggingFaceHead::language_model}));
  EXPECT_EQ(found["model_type"], "llama");
  EXPECT_EQ(found["architectures"][0], "LlamaForCausalLM");
}

TEST(HuggingFaceRewrite, RefusesAnOriginalThatIsNoModel) {
  const auto text = error_text<DataError>([] { rewritten(R"({"model_type": "t5"})", LlamaConfig()); });
  EXPECT_TRUE(text.starts_with("config.json:1:16: model_type: models of type \"t5\" are not supported")) << text;
  const auto garbage = error_text<DataError>([] { hugging_face_head("{]", "original_config.json"); });
  EXPECT_TRUE(garbage.starts_with("original_config.json:1:2: ")) << garbage;
}

}  // namespace hugging_face_rewrite_test
}  // namespace orthant
