#include "orthant/models/hugging_face_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error_text.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/llama/config.h"

namespace orthant {
namespace hugging_face_names_test {

ModelConfig config_of(std::string_view text) {
  return parse_hugging_face_config(text, "config.json");
}

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 12, "vocab_size": 11})";
constexpr const char* kTiedLlama = R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 12, "vocab_size": 11, "tie_word_embeddings": true})";
constexpr const char* kGpt2 = R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 2, "vocab_size": 11})";
constexpr const char* kBert = R"({"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 12, "vocab_size": 11})";
constexpr const char* kRoberta = R"({"model_type": "roberta", "hidden_size": 8, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 12, "vocab_size": 11})";

std::vector<WantedParameter> wanted_by(const GraphSpec& spec) {
  std::vector<WantedParameter> wanted;
  for (const auto& unit : spec.units) {
    for (const auto& parameter : unit.parameters) wanted.push_back({parameter.name, parameter.shape});
  }
  return wanted;
}

// A model and a folder that fits it exactly, for tests to spoil.
struct Case {
  const NameTable& names;
  std::vector<WantedParameter> wanted;
  std::vector<TensorEntry> stored;

  explicit Case(const char* text, bool bare = false, bool forward = false)
      : names(tensor_names(config_of(text))),
        wanted(wanted_by(forward ? forward_spec(config_of(text), {}) : build_spec(config_of(text), {}))) {
    for (const auto& parameter : wanted) {
      const auto name = hugging_face_name(names, parameter.name, bare).value();
      auto shape = parameter.shape;
      if (name.transposed) std::ranges::reverse(shape);
      stored.push_back({name.tensor, "F32", shape});
    }
  }

  TensorEntry& entry(std::string_view name) { return *std::ranges::find(stored, name, &TensorEntry::name); }
  void drop(std::string_view name) {
    std::erase_if(stored, [&](const TensorEntry& tensor) { return tensor.name == name; });
  }
  TensorMatch match() const { return match_tensors(names, wanted, stored, "folder"); }
  std::string refusal() const {
    return error_text<DataError>([&] { match(); });
  }
};

TEST(HuggingFaceNames, CoverEveryParameterOfEveryModelOnce) {
  for (const char* text : {kLlama, kTiedLlama, kGpt2, kBert, kRoberta}) {
    for (const bool bare : {false, true}) {
      for (const bool forward : {false, true}) {
        const Case whole(text, bare, forward);
        const auto match = whole.match();
        EXPECT_EQ(match.uses.size(), whole.wanted.size()) << text;
        EXPECT_TRUE(match.absent.empty());
        EXPECT_TRUE(match.unused.empty());
        std::set<std::string> names;
        for (const auto& use : match.uses) names.insert(use.tensor);
        EXPECT_EQ(names.size(), whole.wanted.size()) << text;
      }
    }
  }
}

TEST(HuggingFaceNames, AreTheLibrarys) {
  const auto name = [](const NameTable& names, std::string_view parameter, bool bare = false) {
    return hugging_face_name(names, parameter, bare).value().tensor;
  };
  const NameTable& llama = tensor_names(LlamaConfig());
  const NameTable& gpt2 = tensor_names(Gpt2Config());
  const NameTable& bert = tensor_names(BertModelConfig());
  const NameTable& roberta = tensor_names(BertModelConfig{.encoder = bert_preset("roberta-base"), .freeze = {}});
  EXPECT_EQ(name(llama, "layers.31.attention.wq.bias"), "model.layers.31.self_attn.q_proj.bias");
  EXPECT_EQ(name(llama, "head.norm.weight"), "model.norm.weight");
  EXPECT_EQ(name(llama, "head.weight"), "lm_head.weight");
  EXPECT_EQ(name(gpt2, "layers.0.mlp.c_fc.weight"), "transformer.h.0.mlp.c_fc.weight");
  EXPECT_EQ(name(gpt2, "layers.0.mlp.c_fc.weight", true), "h.0.mlp.c_fc.weight");
  EXPECT_EQ(name(bert, "layers.3.attention.norm.bias"), "bert.encoder.layer.3.attention.output.LayerNorm.bias");
  EXPECT_EQ(name(bert, "pooler.dense.weight", true), "pooler.dense.weight");
  EXPECT_EQ(name(bert, "head.bias"), "cls.predictions.bias");
  EXPECT_EQ(name(roberta, "head.norm.weight", true), "lm_head.layer_norm.weight");
  EXPECT_FALSE(hugging_face_name(bert, "pooler.projection.weight", false).has_value());
}

TEST(HuggingFaceNames, TransposeOnlyGpt2sMatrices) {
  const NameTable& gpt2 = tensor_names(Gpt2Config());
  EXPECT_TRUE(hugging_face_name(gpt2, "layers.1.attn.c_attn.weight", false)->transposed);
  EXPECT_FALSE(hugging_face_name(gpt2, "layers.1.attn.c_attn.bias", false)->transposed);
  EXPECT_FALSE(hugging_face_name(gpt2, "embed.wte.weight", false)->transposed);
  EXPECT_FALSE(hugging_face_name(gpt2, "head.lm_head.weight", false)->transposed);
  for (const auto& use : Case(kLlama).match().uses) EXPECT_FALSE(use.transposed);
}

TEST(HuggingFaceMatch, TakesOldNamesOfNormsAndAnyPrefix) {
  Case old(kBert, /*bare=*/true, /*forward=*/true);
  for (auto& tensor : old.stored) {
    if (tensor.name.ends_with("LayerNorm.weight")) tensor.name.replace(tensor.name.size() - 6, 6, "gamma");
    if (tensor.name.ends_with("LayerNorm.bias")) tensor.name.replace(tensor.name.size() - 4, 4, "beta");
    tensor.name = "0.auto_model." + tensor.name;
  }
  EXPECT_EQ(old.match().uses.size(), old.wanted.size());
}

TEST(HuggingFaceMatch, IgnoresBuffersAndListsOtherHeads) {
  Case more(kGpt2);
  more.stored.push_back({"transformer.h.0.attn.bias", "U8", {1, 1, 4, 4}});
  more.stored.push_back({"transformer.h.1.attn.masked_bias", "F32", {}});
  more.stored.push_back({"score.weight", "F32", {2, 8}});
  EXPECT_EQ(more.match().unused, std::vector<std::string>{"score.weight"});
  Case rotary(kLlama);
  rotary.stored.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}});
  EXPECT_TRUE(rotary.match().unused.empty());
}

TEST(HuggingFaceMatch, ReportsHeadsAndPoolersThatAreMissing) {
  Case bare(kBert, /*bare=*/true);
  std::erase_if(bare.stored, [](const auto& tensor) { return tensor.name.starts_with("cls."); });
  EXPECT_EQ(bare.match().absent, (std::vector<std::string>{"head.dense.weight", "head.dense.bias", "head.norm.weight",
                                                           "head.norm.bias", "head.bias"}));
  Case pooled(kBert, true, /*forward=*/true);
  pooled.drop("pooler.dense.weight");
  EXPECT_EQ(pooled.match().absent, std::vector<std::string>{"pooler.dense.weight"});
  Case headless(kLlama);
  headless.drop("lm_head.weight");
  EXPECT_EQ(headless.match().absent, std::vector<std::string>{"head.weight"});
}

TEST(HuggingFaceMatch, WantsSecondCopiesOfTiedTensorsToBeEqual) {
  Case tied(kTiedLlama);
  tied.stored.push_back({"lm_head.weight", "F32", {11, 8}});
  const auto match = tied.match();
  ASSERT_EQ(match.tied.size(), 1U);
  EXPECT_EQ(match.tied[0], std::pair(std::string("lm_head.weight"), std::string("model.embed_tokens.weight")));
  tied.entry("lm_head.weight").dtype = "BF16";
  EXPECT_NE(tied.refusal().find("lm_head.weight: BF16 [11, 8]; it is tied to model.embed_tokens.weight, F32 [11, 8]"),
            std::string::npos);
  Case masked(kBert);
  masked.drop("cls.predictions.bias");
  masked.stored.push_back({"cls.predictions.decoder.bias", "F32", {11}});
  masked.stored.push_back({"cls.predictions.decoder.weight", "F32", {11, 8}});
  EXPECT_TRUE(masked.match().absent.empty());
  EXPECT_EQ(masked.match().tied.size(), 1U);
  Case forward(kBert, false, /*forward=*/true);
  forward.stored.push_back({"cls.predictions.decoder.weight", "F32", {11, 8}});
  EXPECT_TRUE(forward.match().tied.empty());
  EXPECT_EQ(forward.match().unused, std::vector<std::string>{"cls.predictions.decoder.weight"});
}

TEST(HuggingFaceMatch, ListsAllDifferencesInOneError) {
  Case wrong(kLlama);
  wrong.drop("model.norm.weight");
  wrong.entry("model.embed_tokens.weight").shape = {12, 8};
  wrong.entry("model.layers.1.mlp.up_proj.weight").dtype = "I8";
  wrong.stored.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {8}});
  for (const char* layer : {"2", "3"}) {
    wrong.stored.push_back({std::string("model.layers.") + layer + ".input_layernorm.weight", "F32", {8}});
  }
  EXPECT_EQ(wrong.refusal(),
            "folder: the weights do not fit config.json (5 differences)\n"
            "  model.embed_tokens.weight: [12, 8] in the folder, [11, 8] by config.json\n"
            "  model.layers.1.mlp.up_proj.weight: dtype I8; F64, F32, BF16 and F16 can be read\n"
            "  model.norm.weight: missing, [8] expected\n"
            "  model.layers.0.self_attn.q_proj.bias: a model of this config.json has no such tensor\n"
            "  model.layers.*: layers 2 to 3 are stored, config.json has 2 layers\n"
            "  fix: use the config.json that was saved with these weights");
}

TEST(HuggingFaceMatch, CutsLongListsOfDifferences) {
  Case wrong(kLlama);
  for (auto& tensor : wrong.stored) tensor.shape.push_back(1);
  const auto text = wrong.refusal();
  EXPECT_NE(text.find("(21 differences)"), std::string::npos);
  EXPECT_NE(text.find("\n  and 1 more\n"), std::string::npos);
}

TEST(HuggingFaceMatch, ExpectsGpt2sMatricesTheOtherWayRound) {
  Case wrong(kGpt2);
  std::ranges::reverse(wrong.entry("transformer.h.0.mlp.c_fc.weight").shape);
  EXPECT_NE(wrong.refusal().find("transformer.h.0.mlp.c_fc.weight: [32, 8] in the folder, [8, 32] by config.json"),
            std::string::npos);
}

}  // namespace hugging_face_names_test
}  // namespace orthant
