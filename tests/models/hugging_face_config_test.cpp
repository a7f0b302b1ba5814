#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace hugging_face_config_test {

namespace fs = std::filesystem;

ModelConfig config_of(std::string_view text) {
  return parse_hugging_face_config(text, "config.json");
}

std::string refusal(std::string_view text) {
  return error_text<DataError>([&] { config_of(text); });
}

template <typename Config>
Config read(std::string_view text) {
  return get<Config>(config_of(text));
}

TEST(HuggingFaceConfig, TakesTheLibrarysDefaultsOfEachType) {
  const auto llama = read<LlamaConfig>(R"({"model_type": "llama"})");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.num_key_value_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.tie_word_embeddings);
  const auto gpt2 = read<Gpt2Config>(R"({"model_type": "gpt2"})");
  EXPECT_EQ(gpt2.vocab_size, 50257);
  EXPECT_EQ(gpt2.intermediate_size, 3072);
  EXPECT_TRUE(gpt2.tie_word_embeddings);
  EXPECT_EQ(gpt2.activation_function, ActivationFunction::gelu_new);
  const auto bert = read<BertModelConfig>(R"({"model_type": "bert"})").encoder;
  EXPECT_EQ(bert.vocab_size, 30522);
  EXPECT_EQ(bert.pad_token_id, 0);
  EXPECT_EQ(bert.position_offset, 0);
  const auto roberta = read<BertModelConfig>(R"({"model_type": "roberta"})").encoder;
  EXPECT_EQ(roberta.vocab_size, 50265);
  EXPECT_EQ(roberta.pad_token_id, 1);
  EXPECT_EQ(roberta.position_offset, 2);
  EXPECT_EQ(roberta.type_vocab_size, 2);
  EXPECT_EQ(roberta.layer_norm_eps, 1e-12);
  for (const char* type : {"xlm-roberta", "camembert"}) {
    const auto other = read<BertModelConfig>(std::string(R"({"model_type": ")") + type + "\"}").encoder;
    EXPECT_EQ(other.vocab_size, 30522);
    EXPECT_EQ(other.position_offset, 2);
  }
}

// The file of a Llama 3.1, shortened.
constexpr const char* kLlama31 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
  "eos_token_id": [128001, 128008], "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
  "intermediate_size": 224, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 8, "num_hidden_layers": 3, "num_key_value_heads": 2, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": true,
  "vocab_size": 128256})";

TEST(HuggingFaceConfig, ReadsOlderAndNewerRotaryKeysAlike) {
  const auto older = read<LlamaConfig>(kLlama31);
  EXPECT_EQ(older.rope_theta, 500000);
  EXPECT_EQ(older.rope_scaling.kind, RopeScaling::Kind::llama3);
  EXPECT_EQ(older.rope_scaling.factor, 8);
  EXPECT_EQ(older.rope_scaling.original_max_position_embeddings, 8192);
  EXPECT_EQ(older.num_key_value_heads, 2);
  auto json = nlohmann::json::parse(kLlama31);
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_theta"] = json["rope_theta"];
  json["dtype"] = json["torch_dtype"];
  for (const char* key : {"rope_scaling", "rope_theta", "torch_dtype"}) json.erase(key);
  EXPECT_EQ(read<LlamaConfig>(json.dump()), older);
  const auto linear = read<LlamaConfig>(
      R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 5e4})");
  EXPECT_EQ(linear.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(linear.rope_theta, 5e4);
  const auto plain = read<LlamaConfig>(
      R"({"model_type": "llama", "rope_scaling": null, "rope_parameters": {"rope_type": "default", "rope_theta": 7e4}})");
  EXPECT_EQ(plain.rope_scaling.kind, RopeScaling::Kind::none);
  EXPECT_EQ(plain.rope_theta, 7e4);
}

TEST(HuggingFaceConfig, ReadsBothNamesOfGpt2sSizes) {
  const auto own = read<Gpt2Config>(
      R"({"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 40, "n_inner": 71,
          "activation_function": "gelu_pytorch_tanh"})");
  EXPECT_EQ(own.hidden_size, 48);
  EXPECT_EQ(own.intermediate_size, 71);
  EXPECT_EQ(own.max_position_embeddings, 40);
  const auto common = read<Gpt2Config>(
      R"({"model_type": "gpt2", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3,
          "max_position_embeddings": 40, "n_inner": 71})");
  EXPECT_EQ(common, own);
  EXPECT_EQ(read<Gpt2Config>(R"({"model_type": "gpt2", "n_inner": null})").intermediate_size, 3072);
}

TEST(HuggingFaceConfig, IgnoresWhatDoesNotChangeTheForwardPass) {
  EXPECT_NO_THROW(config_of(
      R"({"model_type": "bert", "is_decoder": false, "gradient_checkpointing": true, "id2label": {"0": "a"},
          "classifier_dropout": null, "pruned_heads": {}, "quantization_config": null, "some_future_key": [1, 2]})"));
}

TEST(HuggingFaceConfig, RefusesByNameWhatWouldBeAnotherModel) {
  struct Row {
    const char* text;
    const char* expected;
  };
  const std::string other = "\n  fix: this model cannot be computed here: use one without it";
  const std::vector<Row> rows = {
      {R"({"model_type": "bert", "is_decoder": true})",
       "config.json:1:38: is_decoder: is true: an encoder under a causal mask is not supported"},
      {R"({"model_type": "bert", "add_cross_attention": true})",
       "config.json:1:47: add_cross_attention: is true: cross attention is not supported"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})",
       "config.json:1:59: scale_attn_by_inverse_layer_idx: is true: attention divided by the layer's number is not "
       "supported"},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})",
       "config.json:1:46: scale_attn_weights: is false: attention is always divided by sqrt(head size) here"},
      {R"({"model_type": "llama", "partial_rotary_factor": 0.5})",
       "config.json:1:50: partial_rotary_factor: is 0.5: only whole heads are turned here"},
      {R"({"model_type": "llama", "rope_parameters": {"partial_rotary_factor": 0.25}})",
       "config.json:1:70: rope_parameters.partial_rotary_factor: is 0.25: only whole heads are turned here"},
      {R"({"model_type": "bert", "pruned_heads": {"1": [0]}})",
       "config.json:1:40: pruned_heads: found {\"1\":[0]}: pruned heads are not supported"},
  };
  for (const auto& row : rows) EXPECT_EQ(refusal(row.text), row.expected + other);
  EXPECT_EQ(refusal(R"({"model_type": "bert", "position_embedding_type": "relative_key"})"),
            "config.json:1:51: position_embedding_type: \"relative_key\" is not supported\n"
            "  fix: models with absolute positions can be read");
  EXPECT_EQ(refusal(R"({"model_type": "bert", "hidden_act": "quick_gelu"})"),
            "config.json:1:38: hidden_act: the activation \"quick_gelu\" is not supported\n"
            "  fix: models with gelu, gelu_new (its tanh form), relu or silu can be read");
  EXPECT_EQ(refusal(R"({"model_type": "llama", "hidden_act": "gelu"})"),
            "config.json:1:39: hidden_act: the activation \"gelu\" is not supported in a Llama\n"
            "  fix: Llama models with silu can be read");
  EXPECT_EQ(refusal(R"({"model_type": "llama", "quantization_config": {"bits": 4}})"),
            "config.json:1:48: quantization_config: quantized weights are not supported\n"
            "  fix: use the folder of the model before quantization");
  EXPECT_NE(refusal(R"({"model_type": "llama", "rope_scaling": {"rope_type": "longrope", "factor": 2}})")
                .find("config.json:1:55: rope_scaling.rope_type: unknown value \"longrope\""),
            std::string::npos);
}

TEST(HuggingFaceConfig, RefusesUnknownTypesAndSizesThatDoNotFit) {
  EXPECT_EQ(refusal(R"({"model_type": "mamba"})"),
            "config.json:1:16: model_type: models of type \"mamba\" are not supported\n"
            "  fix: use one of llama, bert, roberta, xlm-roberta, camembert, gpt2, qwen3, mistral, mixtral, qwen3_moe, "
            "qwen2_moe");
  EXPECT_EQ(refusal("{}"), "config.json:1:1: missing key model_type (a string)\n  fix: add \"model_type\"");
  EXPECT_NE(refusal(R"({"model_type": "bert", "hidden_size": 10, "num_attention_heads": 3})")
                .find("num_attention_heads: 3 does not divide hidden_size 10"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": "bert", "vocab_size": "many"})").find("vocab_size: expected"), std::string::npos);
}

TEST(HuggingFaceConfig, SaysWhatAFolderNeeds) {
  const auto folder = fs::path(testing::TempDir()) / "orthant_hf_config";
  fs::remove_all(folder);
  const std::string needs =
      "\n  fix: name a folder with config.json and model.safetensors (or its shards), as save_pretrained() or `hf "
      "download NAME --local-dir FOLDER` writes it; nothing is downloaded here";
  EXPECT_EQ(error_text<DataError>([&] { read_hugging_face_config(folder); }),
            folder.string() + ": no such model folder" + needs);
  fs::create_directories(folder);
  EXPECT_EQ(error_text<DataError>([&] { read_hugging_face_config(folder); }),
            folder.string() + ": no model folder, it has no config.json" + needs);
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2", "n_layer": 3})";
  EXPECT_EQ(get<Gpt2Config>(read_hugging_face_config(folder)).num_hidden_layers, 3);
  fs::remove_all(folder);
}

TEST(HuggingFaceConfig, ReadsWhatItWrites) {
  const std::vector<const char*> texts = {
      kLlama31,
      R"({"model_type": "llama", "hidden_size": 40, "num_attention_heads": 4, "head_dim": 6, "attention_bias": true,
          "mlp_bias": true, "tie_word_embeddings": true, "rope_scaling": {"type": "dynamic", "factor": 3.0}})",
      R"({"model_type": "llama", "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 20000.0,
          "original_max_position_embeddings": 512, "beta_fast": 24.0, "mscale": 1.2, "mscale_all_dim": 0.9,
          "truncate": false}})",
      R"({"model_type": "gpt2", "n_inner": 77, "activation_function": "relu", "tie_word_embeddings": false})",
      R"({"model_type": "bert", "hidden_act": "gelu_new", "type_vocab_size": 3, "layer_norm_eps": 1e-6})",
      R"({"model_type": "roberta", "pad_token_id": 4, "max_position_embeddings": 66, "type_vocab_size": 1})",
  };
  for (const char* text : texts) {
    const auto config = config_of(text);
    for (const auto head : {HuggingFaceHead::none, HuggingFaceHead::language_model}) {
      EXPECT_EQ(config_of(hugging_face_config_text(config, head, DType::bfloat16)), config) << text;
    }
  }
}

TEST(HuggingFaceConfig, WritesKeysOfBothGenerations) {
  const auto json = nlohmann::json::parse(
      hugging_face_config_text(config_of(kLlama31), HuggingFaceHead::language_model, DType::bfloat16));
  EXPECT_EQ(json.at("architectures"), nlohmann::json({"LlamaForCausalLM"}));
  EXPECT_EQ(json.at("dtype"), "bfloat16");
  EXPECT_EQ(json.at("torch_dtype"), "bfloat16");
  EXPECT_EQ(json.at("rope_theta"), 500000.0);
  EXPECT_EQ(json.at("rope_scaling").at("rope_type"), "llama3");
  EXPECT_EQ(json.at("rope_parameters").at("rope_theta"), 500000.0);
  EXPECT_EQ(json.at("rope_parameters").at("factor"), 8.0);
  const auto architecture = [](std::string_view text, HuggingFaceHead head) {
    const auto written = nlohmann::json::parse(hugging_face_config_text(config_of(text), head, DType::float32));
    return written.at("architectures").at(0).get<std::string>();
  };
  EXPECT_EQ(architecture(R"({"model_type": "gpt2"})", HuggingFaceHead::language_model), "GPT2LMHeadModel");
  EXPECT_EQ(architecture(R"({"model_type": "bert"})", HuggingFaceHead::none), "BertModel");
  EXPECT_EQ(architecture(R"({"model_type": "bert"})", HuggingFaceHead::language_model), "BertForMaskedLM");
  EXPECT_EQ(architecture(R"({"model_type": "roberta"})", HuggingFaceHead::none), "RobertaModel");
  EXPECT_EQ(architecture(R"({"model_type": "xlm-roberta"})", HuggingFaceHead::language_model), "RobertaForMaskedLM");
}

TEST(HuggingFaceConfig, RefusesToWriteModelsThatTheLibraryDoesNotHave) {
  const auto refused = [](const ModelConfig& config) {
    return error_text<ConfigError>([&] { hugging_face_config_text(config, HuggingFaceHead::none, DType::float32); });
  };
  EXPECT_EQ(refused(EncoderLmConfig{}),
            "a model of kind encoder_lm cannot be written as a Hugging Face folder: there is no such model there\n"
            "  fix: its checkpoints are safetensors files that other programs can read as they are");
  EXPECT_EQ(refused(TrimodalConfig{}),
            "a model of kind trimodal cannot be written as a Hugging Face folder: there is no such model there\n"
            "  fix: write one of its encoders with --tower primary or --tower secondary");
  BertModelConfig shifted;
  shifted.encoder.position_offset = 3;
  EXPECT_NE(refused(shifted).find("position_offset is 3 with pad_token_id 0"), std::string::npos);
}

}  // namespace hugging_face_config_test
}  // namespace orthant
