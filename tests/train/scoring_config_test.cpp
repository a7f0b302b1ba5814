#include "orthant/train/scoring_config.h"

#include <gtest/gtest.h>

#include "files/temporary_folder.h"
#include "mesh/thrown_error.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace scoring_config_test {

using nlohmann::json;
using test::TemporaryFolder;
using test::thrown_text;

json run_config() {
  return {{"name", "demo"},
          {"seed", 7},
          {"model",
           {{"kind", "llama"},
            {"hidden_size", 16},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 2},
            {"intermediate_size", 32},
            {"vocab_size", 64},
            {"path", "gone"},
            {"freeze", json::array()}}},
          {"data", {{"kind", "text"}, {"path", {"a.txt", "b.txt"}}, {"eval_path", {"c.txt"}}, {"sequence_length", 8}}},
          {"mesh", {{"pp", 2}, {"dp", 2}, {"fsdp", 1}}},
          {"parallel", {{"microbatches", 2}, {"schedule", "zbv"}, {"split", json::array()}}},
          {"precision", {{"compute", "bfloat16"}}},
          {"optimizer", {{"kind", "sgd"}}},
          {"train", {{"global_batch_size", 24}, {"steps", 50}, {"eval_every", 5}, {"early_stop", 2}}},
          {"checkpoint", {{"key_file", "key"}, {"save_every", 5}, {"keep_best", 2}}}};
}

ScoredModel model_of(json config) {
  return {
      .folder = "runs/a", .run = "runs/a", .checkpoints = {"runs/a/checkpoints/step-1"}, .config = std::move(config)};
}

ScoringSettings settings_on(const char* mesh) {
  ScoringSettings settings;
  settings.data = "new.txt";
  settings.mesh = Mesh::parse(mesh);
  return settings;
}

TEST(ScoringConfig, KeepsWhatDecidesNumbersAndNothingOfTheTraining) {
  const auto config = scoring_config(model_of(run_config()), settings_on("fsdp=2,tp=2"));
  EXPECT_EQ(config["data"], (json{{"kind", "text"}, {"path", "new.txt"}, {"sequence_length", 8}}));
  EXPECT_EQ(config["model"]["freeze"], json({"*"}));
  EXPECT_FALSE(config["model"].contains("path"));
  EXPECT_EQ(config["seed"], 7);
  EXPECT_EQ(config["precision"]["compute"], "bfloat16");
  EXPECT_EQ(config["train"], (json{{"global_batch_size", 12}, {"steps", 1}})) << "2 replicas of the run's 6 rows";
  EXPECT_EQ(config["checkpoint"], (json{{"key_file", "key"}}));
  EXPECT_FALSE(config.contains("parallel"));
  EXPECT_FALSE(config.contains("optimizer"));
  const auto read = read_scoring_config(model_of(run_config()), config);
  EXPECT_FALSE(read.trainer.trains);
  EXPECT_EQ(work_size(read).rows, 6);
  EXPECT_EQ(read.mesh, Mesh::parse("fsdp=2,tp=2"));
}

TEST(ScoringConfig, ProductsInFloat8AreOfTrainingAlone) {
  auto run = run_config();
  run["precision"]["compute"] = "float8";
  EXPECT_EQ(scoring_config(model_of(run), settings_on("dp=1"))["precision"]["compute"], "bfloat16");
}

TEST(ScoringConfig, DocumentsAreScoredOneByOne) {
  auto settings = settings_on("dp=4");
  settings.by_document = true;
  settings.separator = "line";
  settings.text_column = "body";
  settings.sequence_length = 5;
  settings.key_file = "other";
  const auto config = scoring_config(model_of(run_config()), settings);
  EXPECT_EQ(config["train"]["global_batch_size"], 4);
  EXPECT_EQ(config["data"]["separator"], "line");
  EXPECT_EQ(config["data"]["text_column"], "body");
  EXPECT_EQ(config["data"]["sequence_length"], 5);
  EXPECT_EQ(config["checkpoint"]["key_file"], "other");
}

TEST(ScoringConfig, RefusesRunsAndFilesOfDifferentKinds) {
  auto config = run_config();
  config["data"] = {{"kind", "tokens"}};
  EXPECT_EQ(thrown_text([&] { scoring_config(model_of(config), settings_on("dp=1")); }),
            "runs/a was trained on generated data (data.kind tokens): nothing says how to read new.txt for it\n"
            "use a run on files of your own: data.kind trimodal (a table) or text");
  config["data"] = {{"kind", "trimodal"}};
  EXPECT_EQ(thrown_text([&] { scoring_config(model_of(config), settings_on("dp=1")); }),
            "runs/a classifies rows of tables, and new.txt is none\n"
            "name a table: .csv, .tsv, .jsonl, .ndjson or .json");
  auto settings = settings_on("dp=1");
  settings.data = "new.csv";
  settings.separator = "line";
  EXPECT_EQ(thrown_text([&] { scoring_config(model_of(config), settings); }),
            "--separator, --text-column or --sequence-length for runs/a, a classifier of rows of a table\n"
            "leave them out: the model's columns and lengths are known");
}

TEST(ScoringConfig, WithoutAFileTheRunsOwnDataStays) {
  auto settings = settings_on("dp=2");
  settings.data.clear();
  auto run = run_config();
  run["data"]["log_samples"] = true;
  auto expected = run_config()["data"];
  EXPECT_EQ(scoring_config(model_of(run), settings)["data"], expected);
  run["data"].erase("eval_path");
  EXPECT_EQ(thrown_text([&] { scoring_config(model_of(run), settings); }),
            "runs/a: the run held nothing out: data.eval_fraction is 0, and there is no data.eval_path\n"
            "name a file with --data");
  run["data"]["eval_fraction"] = 0.1;
  EXPECT_EQ(scoring_config(model_of(run), settings)["data"]["eval_fraction"], 0.1);
  run["data"] = {{"kind", "tokens"}, {"eval_fraction", 0.25}};
  EXPECT_EQ(scoring_config(model_of(run), settings)["data"]["kind"], "tokens") << "generated data has such a part, too";
  settings.separator = "line";
  EXPECT_EQ(thrown_text([&] { scoring_config(model_of(run), settings); }),
            "--separator, --text-column or --bad-rows without --data: the run's own data is read as it was\n"
            "leave them out, or name a file with --data");
}

TEST(ScoringConfig, RefusesAMeshThatDoesNotFit) {
  const auto refused = [](const char* mesh) {
    return thrown_text([&] {
      const auto model = model_of(run_config());
      read_scoring_config(model, scoring_config(model, settings_on(mesh)));
    });
  };
  EXPECT_NE(refused("dp=2,ep=2").find("has no experts for ep"), std::string::npos);
  EXPECT_NE(refused("tp=3").find("cannot be shared by tp=3"), std::string::npos);
  EXPECT_NE(refused("pp=9").find("use at most"), std::string::npos);
}

class ScoredFolders : public testing::Test {
 protected:
  std::filesystem::path make(const std::string& name) const {
    std::filesystem::create_directories(folder_ / name);
    return folder_ / name;
  }
  template <typename Find>
  std::string refused(const Find& find) const {
    return thrown_text<DataError>([&] { find(); });
  }

  TemporaryFolder folder_;
};

TEST_F(ScoredFolders, ARunGivesItsCheckpointsNewestFirst) {
  const auto run = make("run");
  write_file_atomically(run / "config.json", run_config().dump());
  make("run/checkpoints/step-4");
  make("run/checkpoints/step-12");
  for (const auto& model : {find_scored_run(run, ""), find_scored_model(run)}) {
    EXPECT_EQ(model.checkpoints, (std::vector<std::string>{(run / "checkpoints/step-12").string(),
                                                           (run / "checkpoints/step-4").string()}));
    EXPECT_TRUE(model.chooses);
    EXPECT_EQ(model.run, run);
  }
  const auto named = find_scored_run(run, "elsewhere/step-3");
  EXPECT_EQ(named.checkpoints, (std::vector<std::string>{"elsewhere/step-3"}));
  EXPECT_FALSE(named.chooses);
  write_file_atomically(run / "checkpoints/step-4/manifest.json", "{}");
  const auto checkpoint = find_scored_model(run / "checkpoints/step-4");
  EXPECT_FALSE(checkpoint.chooses);
  EXPECT_EQ(checkpoint.run, std::filesystem::canonical(run));
  EXPECT_NE(refused([&] {
              find_scored_run(run / "checkpoints/step-4", "");
            }).find("step-4: a checkpoint, not the folder of a run\nuse --run "),
            std::string::npos);
}

TEST_F(ScoredFolders, AreRefusedByNameWhereThereIsNothingToScoreWith) {
  const auto empty = make("empty");
  const auto none = (folder_ / "none").string();
  EXPECT_EQ(refused([&] { find_scored_model(none); }),
            none + ": there is no such folder\nname a checkpoint, the folder of a run, or of a Hugging Face model");
  EXPECT_EQ(refused([&] { find_scored_run(none, ""); }),
            none + ": there is no such folder\nname the folder of a run, such as runs/NAME-1");
  EXPECT_EQ(refused([&] { find_scored_model(empty); }),
            empty.string() +
                ": holds neither a checkpoint nor a model (config.json)\n"
                "name a checkpoint, the folder of a run, or of a Hugging Face model");
  EXPECT_NE(refused([&] { find_scored_run(empty, ""); }).find("no config.json says which model this is"),
            std::string::npos);
  write_file_atomically(empty / "config.json", run_config().dump());
  const std::string without = empty.string() +
                              ": the run has no checkpoint\n"
                              "train it to its end, or with checkpoint.save_every, or name another run";
  EXPECT_EQ(refused([&] { find_scored_model(empty); }), without);
  EXPECT_EQ(refused([&] { find_scored_run(empty, ""); }), without);
  write_file_atomically(empty / "config.json",
                        R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
                            "intermediate_size": 8, "vocab_size": 31})");
  EXPECT_NE(refused([&] { find_scored_run(empty, ""); }).find("has no section \"model\""), std::string::npos);
  EXPECT_NE(refused([&] { find_scored_model(empty); }).find("has no tokenizer, without which no text can be read"),
            std::string::npos);
  write_file_atomically(empty / "vocab.txt", "a\n");
  const auto model = find_scored_model(empty);
  EXPECT_TRUE(model.checkpoints.empty());
  EXPECT_EQ(model.config["data"]["sequence_length"], 2048);
}

}  // namespace scoring_config_test
}  // namespace orthant
