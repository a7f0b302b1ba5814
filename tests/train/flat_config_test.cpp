// The flat trimodal form as sections: every value arrives where it belongs, and what is wrong names its line.
#include "orthant/train/flat_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error_text.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/train/run_config.h"

namespace orthant {
namespace flat_config_test {

constexpr const char* kFlat = R"({
  "label_name": "label",
  "primary_text_name": "dialogue",
  "secondary_text_name": "shiptrack",
  "tab_field_list": ["feature_1", "feature_2", "feature_3"],
  "primary_tokenizer": "bert-base-cased",
  "secondary_tokenizer": "roberta-large",
  "hidden_common_dim": 256,
  "fusion_hidden_dim": 128,
  "fusion_dropout": 0.1,
  "is_binary": true,
  "num_classes": 2,
  "class_weights": [1.0, 2.0],
  "lr": 2e-5,
  "weight_decay": 0.01,
  "warmup_steps": 100,
  "_comments": {"hybrid_config": "any text"}
})";

JsonDocument flat(const std::vector<std::pair<std::string, std::string>>& replaced = {}) {
  std::string text = kFlat;
  for (const auto& [old_text, new_text] : replaced) text.replace(text.find(old_text), old_text.size(), new_text);
  JsonOptions options;
  options.source = "flat.json";
  return JsonDocument::parse(text, options);
}

RunConfig read(const JsonDocument& document, const std::vector<std::string>& overrides = {"data.path=rows.csv"}) {
  auto sections = sections_of_flat_config(document);
  for (const auto& assignment : overrides) sections.apply_override(assignment);
  return read_run_config(sections);
}

TEST(FlatConfig, IsToldFromSectionsByItsKeys) {
  EXPECT_TRUE(is_flat_config(flat()));
  EXPECT_FALSE(is_flat_config(JsonDocument::parse(R"({"model": {"kind": "llama"}})")));
}

TEST(FlatConfig, EveryValueArrivesInItsSection) {
  const auto config = read(flat());
  const auto& model = get<TrimodalConfig>(config.model);
  EXPECT_EQ(model.primary.hidden_size, 768);
  EXPECT_EQ(model.secondary.hidden_size, 1024);
  EXPECT_EQ(model.projection, 256);
  ASSERT_TRUE(model.tabular.has_value());
  EXPECT_EQ(model.tabular->input_dim, 3);
  EXPECT_EQ(model.tabular->hidden_dim, 256);
  EXPECT_EQ(model.fusion.hidden_size, 128);
  EXPECT_EQ(model.fusion.dropout, 0.1);
  EXPECT_EQ(model.num_labels, 2);
  const auto& table = config.data.table;
  EXPECT_EQ(table.path, "rows.csv");
  EXPECT_EQ(table.label, "label");
  EXPECT_EQ(table.primary_text, "dialogue");
  EXPECT_EQ(table.secondary_text, "shiptrack");
  EXPECT_EQ(table.tabular, (std::vector<std::string>{"feature_1", "feature_2", "feature_3"}));
  EXPECT_EQ(table.primary_tokenizer, "bert-base-cased");
  EXPECT_EQ(table.secondary_tokenizer, "roberta-large");
  EXPECT_EQ(table.class_weights, (std::vector<double>{1, 2}));
  EXPECT_EQ(config.trainer.lr.peak, 2e-5);
  EXPECT_EQ(config.trainer.lr.kind, LrSchedule::Kind::linear);
  EXPECT_EQ(config.trainer.lr.final_fraction, 0);
  EXPECT_EQ(config.trainer.lr.warmup_steps, 100);
  EXPECT_EQ(config.trainer.optimizer.weight_decay, 0.01);
  EXPECT_EQ(config.trainer.optimizer.clip, 1.0);
  EXPECT_EQ(config.epochs, 10);
  EXPECT_EQ(config.global_batch_size, 32);
}

TEST(FlatConfig, OverridesAddressTheSections) {
  const auto config = read(flat(), {"data.path=rows.csv", "model.primary.hidden_size=24", "train.epochs=2"});
  EXPECT_EQ(get<TrimodalConfig>(config.model).primary.hidden_size, 24);
  EXPECT_EQ(config.epochs, 2);
}

TEST(FlatConfig, ValuesKeepTheLineTheyCameFrom) {
  const auto sections = sections_of_flat_config(flat());
  read_run_config([&] {
    auto copy = sections;
    copy.apply_override("data.path=rows.csv");
    return copy;
  }());
  EXPECT_NE(printed_config(sections).find("flat.json:14 optimizer.lr=2e-05"), std::string::npos)
      << printed_config(sections);
}

TEST(FlatConfig, EpochsBecomeStepsWhenTheRowsAreCounted) {
  auto config = read(flat(), {"data.path=rows.csv", "checkpoint.save_every_epochs=2", "lr_schedule.warmup_steps=1"});
  EXPECT_EQ(config.steps, 0);
  set_samples(config, 100);
  EXPECT_EQ(config.steps, 10 * 4);
  EXPECT_EQ(config.trainer.lr.total_steps, 40);
  EXPECT_EQ(config.checkpoint.save_every, 8);
}

TEST(FlatConfig, RefusalsNameTheKeyAndTheRemedy) {
  const auto refused = [](const JsonDocument& document, const std::string& expected,
                          const std::vector<std::string>& overrides = {"data.path=rows.csv"}) {
    const auto text = error_text<ConfigError>([&] { read(document, overrides); });
    EXPECT_NE(text.find(expected), std::string::npos) << expected << " in\n" << text;
  };
  refused(flat({{"\"is_binary\": true", "\"is_binary\": false"}}),
          "flat.json:11:16: is_binary: contradicts num_classes 2");
  refused(flat({{"\"primary_tokenizer\": \"bert-base-cased\"", "\"primary_tokenizer\": \"bert-huge\""}}),
          "primary_tokenizer: \"bert-huge\" is neither the folder of a model nor a known size");
  refused(flat({{"\"fusion_dropout\"", "\"fusion_droput\""}}), "fusion_droput");
  refused(flat(), "--data_path FILE", {});
}

TEST(FlatConfig, TheSeedsConfigurationsAreRead) {
  for (const char* name : {"hybrid_pp_dp_8gpu", "hybrid_fsdp_pp_8gpu", "hybrid_3d_16gpu"}) {
    SCOPED_TRACE(name);
    const auto path = std::string(ORTHANT_SOURCE_DIR) + "/configs/" + name + ".json";
    const auto config = read_run_config(load_run_document(path, {"data.path=rows.csv"}));
    EXPECT_EQ(get<TrimodalConfig>(config.model).tabular->input_dim, 3);
  }
}

}  // namespace flat_config_test
}  // namespace orthant
