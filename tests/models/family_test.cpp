// What families answer to other layers: every one in the list has all that is asked of it, and its own facts.
#include "orthant/models/family.h"

#include <gtest/gtest.h>

#include <set>

#include "models/model_text.h"
#include "orthant/base/error.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/hugging_face_names.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace family_test {

TEST(Families, HaveWhatOtherLayersAskFor) {
  for (const Family* family : families()) {
    SCOPED_TRACE(family->name);
    EXPECT_EQ(find_family(family->name), family);
    const auto presets = family->presets();
    ASSERT_FALSE(presets.empty());
    ModelConfig config = presets.front().config;
    EXPECT_EQ(&config.family(), family);
    EXPECT_EQ(build_spec(config, {.rows = 1, .sequence = 2}).name, family->name);
    const ModelFacts facts = facts_of(config);
    EXPECT_GT(facts.vocab_size, 0);
    EXPECT_GT(facts.max_sequence, 0);
    EXPECT_EQ(facts.classifier.has_value(), family->task == Task::classification);
    if (family->task == Task::classification) EXPECT_FALSE(facts.chain.has_value());
    EXPECT_EQ(family->set_class_weights != nullptr, family->task == Task::classification);
    EXPECT_EQ(family->tensor_name != nullptr, family->task == Task::classification);
    EXPECT_NE(family->hugging_face == nullptr, family->without_folder.path_message.empty());
  }
  EXPECT_EQ(find_family("lama"), nullptr);
}

TEST(Families, AreSuggestedByTheirTask) {
  EXPECT_EQ(first_family(Task::next_token).name, "llama");
  EXPECT_EQ(first_family(Task::masked_token).name, "bert");
  EXPECT_EQ(first_family(Task::classification).name, "trimodal");
}

TEST(Families, KeepAtMostSoManyLayers) {
  for (const Family* family : families()) {
    SCOPED_TRACE(family->name);
    const WorkSize one{.rows = 1, .sequence = 1};
    ModelConfig config = family->presets().front().config;
    family->shorten(config, 1);
    std::set<std::string> layers;
    for (const auto& unit : build_spec(config, one).units) {
      if (const auto place = unit.name.find("layers."); place != std::string::npos)
        layers.insert(unit.name.substr(place));
    }
    EXPECT_EQ(layers, (std::set<std::string>{"layers.0"}));
    const ModelConfig shortened = config;
    family->shorten(config, 7);
    EXPECT_EQ(config, shortened);
  }
}

TEST(ModelFacts, LimitIdsByTheFieldTheyStandIn) {
  const auto bert = facts_of(model_of(R"({"preset": "bert-tiny"})"));
  EXPECT_EQ(bert.field_limit("input_ids"), 1024);
  EXPECT_EQ(bert.field_limit("token_type_ids"), 2);
  const auto trimodal = facts_of(model_of(R"({"preset": "trimodal-tiny", "secondary": {"vocab_size": 99}})"));
  EXPECT_EQ(trimodal.field_limit("primary_ids"), 1024);
  EXPECT_EQ(trimodal.field_limit("secondary_ids"), 99);
  EXPECT_EQ(facts_of(model_of(R"({"preset": "gpt2-tiny"})")).field_limit("input_ids"), 256);
}

TEST(ModelFacts, SayWherePositionsEnd) {
  EXPECT_TRUE(facts_of(model_of(R"({"preset": "gpt2-tiny"})")).positions_end);
  EXPECT_FALSE(facts_of(model_of(R"({"preset": "llama-tiny"})")).positions_end);
  EXPECT_EQ(facts_of(model_of(R"({"preset": "llama-tiny"})")).dynamic_positions, std::nullopt);
  const auto dynamic = R"({"preset": "llama-tiny", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})";
  EXPECT_EQ(facts_of(model_of(dynamic)).dynamic_positions, 512);
}

TEST(ModelFacts, SayWhetherTheHeadIsTheEmbedding) {
  EXPECT_TRUE(facts_of(model_of(R"({"preset": "gpt2-tiny"})")).tied_head);
  EXPECT_FALSE(facts_of(model_of(R"({"preset": "llama-tiny"})")).tied_head);
  EXPECT_FALSE(facts_of(model_of(R"({"preset": "bert-tiny"})")).tied_head);
}

TEST(ModelFacts, NameTheFoldersOfWeights) {
  LlamaConfig llama = llama_preset("llama-tiny");
  EXPECT_TRUE(facts_of(llama).sources.empty());
  llama.path = "somewhere";
  const auto sources = facts_of(llama).sources;
  ASSERT_EQ(sources.size(), 1U);
  EXPECT_EQ(sources[0].path, "somewhere");
  EXPECT_EQ(sources[0].prefix, "");
  EXPECT_EQ(sources[0].names, &tensor_names(llama));

  TrimodalConfig trimodal = trimodal_preset("trimodal-tiny");
  trimodal.primary.path = "a";
  trimodal.secondary = bert_preset("roberta-base");
  trimodal.secondary.path = "b";
  const auto towers = facts_of(trimodal).sources;
  ASSERT_EQ(towers.size(), 2U);
  EXPECT_EQ(towers[0].prefix, "primary.");
  EXPECT_EQ(towers[1].prefix, "secondary.");
  EXPECT_EQ(towers[1].names->prefix, "roberta.");
  trimodal.secondary = trimodal.primary;
  trimodal.shared_towers = true;
  EXPECT_EQ(facts_of(trimodal).sources.size(), 1U);
}

TEST(ModelFacts, DescribeAClassifier) {
  TrimodalConfig config = trimodal_preset("trimodal-tiny");
  config.secondary.pad_token_id = 1;
  config.secondary.position_offset = 2;
  ModelConfig model = config;
  const Classifier separate = facts_of(model).classifier.value();
  ASSERT_EQ(separate.towers.size(), 2U);
  EXPECT_EQ(separate.towers[1].name, "secondary");
  EXPECT_EQ(separate.towers[1].prefix, "secondary.");
  EXPECT_EQ(separate.towers[1].pad_token_id, 1);
  EXPECT_FALSE(separate.towers[0].counts_tokens);
  EXPECT_TRUE(separate.towers[1].counts_tokens);
  EXPECT_EQ(get<BertModelConfig>(separate.towers[1].model).encoder, config.secondary);
  EXPECT_EQ(separate.columns, 16);
  EXPECT_EQ(separate.num_labels, 2);
  model.family().set_class_weights(model, {1, 3});
  EXPECT_EQ(facts_of(model).classifier->class_weights, (std::vector<double>{1, 3}));

  config.secondary = config.primary;
  config.shared_towers = true;
  config.tabular = std::nullopt;
  const Classifier shared = facts_of(config).classifier.value();
  EXPECT_EQ(shared.towers[1].prefix, "primary.");
  EXPECT_EQ(shared.columns, std::nullopt);
}

TEST(Families, KnowWhatOfAHeadBelongsToTheBody) {
  UnitSpec unit;
  unit.kind = "llama.head_loss";
  EXPECT_TRUE(is_of_body(unit, "head.norm.weight"));
  EXPECT_FALSE(is_of_body(unit, "head.weight"));
  unit.kind = "gpt2.head";
  EXPECT_TRUE(is_of_body(unit, "head.ln_f.bias"));
  EXPECT_FALSE(is_of_body(unit, "head.lm_head.weight"));
  unit.kind = "bert.head";
  EXPECT_FALSE(is_of_body(unit, "head.norm.weight"));
  unit.kind = "encoder_lm.head";
  EXPECT_FALSE(is_of_body(unit, "head.weight"));
}

TEST(ModelConfig, IsAValueOfOneFamily) {
  EXPECT_THROW(ModelConfig().family(), InternalError);
  EXPECT_EQ(ModelConfig(), ModelConfig());
  ModelConfig model = Gpt2Config();
  EXPECT_NE(model, ModelConfig());
  EXPECT_EQ(model, ModelConfig(Gpt2Config()));
  const ModelConfig copy = model;
  get<Gpt2Config>(model).vocab_size = 7;
  EXPECT_NE(model, copy);
  EXPECT_NE(model, ModelConfig(LlamaConfig()));
  EXPECT_THROW(get<LlamaConfig>(model), std::bad_any_cast);
  EXPECT_EQ(model.get_if<LlamaConfig>(), nullptr);
  EXPECT_EQ(vocab_size(model), 7);
}

}  // namespace family_test
}  // namespace orthant
