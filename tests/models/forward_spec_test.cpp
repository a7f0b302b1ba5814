// forward_spec(): the forward pass of each kind, without loss and with all parameters frozen; and models whose
// configuration lies in a Hugging Face folder.
#include <gtest/gtest.h>

#include <fstream>

#include "files/temporary_folder.h"
#include "models/model_text.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace forward_spec_test {

using Names = std::vector<std::string>;

TEST(ForwardSpec, FreezesEverythingAndHasNoLoss) {
  for (const auto* preset : {"llama-tiny", "gpt2-tiny", "encoder-lm-tiny", "bert-tiny"}) {
    for (const bool mask : {false, true}) {
      const ModelConfig config = model_of(std::string("{\"preset\": \"") + preset + "\"}");
      const GraphSpec spec = forward_spec(config, work_of(2, 5), {.mask = mask, .pooler = true});
      EXPECT_TRUE(spec.losses().empty()) << preset;
      for (const auto& unit : spec.units) {
        EXPECT_EQ(unit.cost.weight_flops, 0) << preset << " " << unit.name;
        for (const auto& parameter : unit.parameters) EXPECT_FALSE(parameter.trainable) << parameter.name;
      }
      const bool bert = std::string(preset) == "bert-tiny";
      EXPECT_EQ(spec.is_batch_field("attention_mask"), mask || bert) << preset;
      EXPECT_FALSE(spec.is_batch_field("labels")) << preset;
      EXPECT_EQ(spec.values.back().name, bert ? "pooler_output" : "logits");
      if (!bert) {
        EXPECT_EQ(spec.unit("layers.1").inputs, mask ? Names({"hidden.1", "attention_mask"}) : Names({"hidden.1"}));
      }
    }
  }
}

TEST(ForwardSpec, RefusesATrimodalModel) {
  EXPECT_EQ(error_text<ConfigError>([] { forward_spec(model_of(R"({"preset": "trimodal-tiny"})"), work_of(1, 1)); }),
            "a model of kind trimodal has no forward pass of its own\n  fix: use a model of kind llama, bert, "
            "gpt2, encoder_lm, qwen3, mistral, mixtral, qwen3_moe or qwen2_moe");
}

class ModelPath : public testing::Test {
 protected:
  ModelPath() {
    write("gpt2", R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 3, "n_head": 4, "vocab_size": 50})");
    write("roberta", R"({"model_type": "roberta", "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4,
                        "intermediate_size": 10, "vocab_size": 50, "max_position_embeddings": 20,
                        "type_vocab_size": 1, "pad_token_id": 1})");
  }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directory(folder / name);
    std::ofstream(folder / name / "config.json") << text;
  }
  std::string at(const std::string& name) const { return (folder / name).string(); }

  test::TemporaryFolder folder;
};

TEST_F(ModelPath, GivesKindAndDefaults) {
  const auto config = get<Gpt2Config>(model_of("{\"path\": \"" + at("gpt2") + "\", \"n_layer\": 2}"));
  EXPECT_EQ(config.hidden_size, 24);
  EXPECT_EQ(config.num_hidden_layers, 2);
  EXPECT_EQ(config.path, at("gpt2"));
  const ModelConfig named = model_of("{\"kind\": \"bert\", \"path\": \"" + at("roberta") + "\"}");
  EXPECT_EQ(get<BertModelConfig>(named).encoder.position_offset, 2);
  EXPECT_EQ(get<BertModelConfig>(named).encoder.path, at("roberta"));
}

TEST_F(ModelPath, APresetSaysAllThatTheFolderWould) {
  const auto config = get<Gpt2Config>(model_of(R"({"preset": "gpt2-tiny", "path": "nowhere"})"));
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.path, "nowhere");
}

TEST_F(ModelPath, GivesATowersDefaults) {
  const TrimodalConfig config = trimodal_of("{\"kind\": \"trimodal\", \"primary\": {\"path\": \"" + at("roberta") +
                                            "\", \"hidden_dropout_prob\": 0}}");
  EXPECT_EQ(config.primary.hidden_size, 24);
  EXPECT_EQ(config.primary.max_sequence(), 18);
  EXPECT_EQ(config.primary.hidden_dropout_prob, 0);
  EXPECT_EQ(config.primary.path, at("roberta"));
  EXPECT_EQ(config.secondary, BertConfig{});
}

TEST_F(ModelPath, RefusesAnotherKind) {
  EXPECT_EQ(
      model_refusal("{\"kind\": \"llama\",\n\"path\": \"" + at("gpt2") + "\"}"),
      "model.json:2:9: path: it holds a model of kind gpt2; kind is llama\n  fix: set kind to gpt2, or leave it out");
  EXPECT_EQ(model_refusal("{\"kind\": \"trimodal\", \"primary\":\n{\"path\": \"" + at("gpt2") + "\"}}"),
            "model.json:2:10: primary.path: it holds a model of kind gpt2; a tower is a BERT or RoBERTa\n"
            "  fix: give the folder of a BERT or RoBERTa model");
  EXPECT_EQ(
      model_refusal(R"({"kind": "trimodal", "path": "x"})"),
      "model.json:1:30: path: a trimodal model has no folder of its own\n  fix: set primary.path and secondary.path");
  EXPECT_EQ(model_refusal(R"({"kind": "encoder_lm", "path": "x"})"),
            "model.json:1:32: path: there are no Hugging Face models of kind encoder_lm\n  fix: remove path");
}

}  // namespace forward_spec_test
}  // namespace orthant
