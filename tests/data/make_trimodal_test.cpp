#include "orthant/data/make_trimodal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "mesh/thrown_error.h"
#include "orthant/data/trimodal_demo.h"

namespace orthant {
namespace make_trimodal_test {

using test::thrown_text;

class MakeTrimodal : public testing::Test {
 protected:
  MakeTrimodal() {
    const std::string name = fmt::format("orthant_make_trimodal_{}_{}", getpid(),
                                         testing::UnitTest::GetInstance()->current_test_info()->name());
    folder_ = std::filesystem::path(testing::TempDir()) / name;
  }
  ~MakeTrimodal() override { std::filesystem::remove_all(folder_); }

  std::string folder() const { return (folder_ / "made").string(); }

  std::filesystem::path folder_;
};

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(text_of(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// The fields of one line that holds no line ends in quotes.
std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

TEST_F(MakeTrimodal, CsvHoldsTheSamplesOfTheGenerator) {
  const MadeTrimodal made = make_trimodal({.rows = 50, .folder = folder(), .seed = 11});
  EXPECT_EQ(made.data, folder() + "/trimodal.csv");
  const auto lines = lines_of(made.data);
  ASSERT_EQ(lines.size(), 51U);
  EXPECT_EQ(lines[0],
            "dialogue,shiptrack,feature_1,feature_2,feature_3,feature_4,feature_5,feature_6,feature_7,feature_8,label");
  const TrimodalDemo demo({.size = 50, .seed = 11});
  for (std::int64_t i = 0; i < 50; ++i) {
    const auto fields = csv_fields(lines[static_cast<std::size_t>(i) + 1]);
    const TrimodalSample sample = demo.sample(i);
    ASSERT_EQ(fields.size(), 11U) << lines[static_cast<std::size_t>(i) + 1];
    EXPECT_EQ(fields[0], sample.dialogue);
    EXPECT_EQ(fields[1], sample.track);
    for (std::size_t j = 0; j < 8; ++j) EXPECT_EQ(std::stof(fields[2 + j]), sample.numbers[j]);
    EXPECT_EQ(fields[10], std::to_string(sample.label));
  }
}

TEST_F(MakeTrimodal, JsonLinesHoldTheSamplesOfTheGenerator) {
  const MadeTrimodal made =
      make_trimodal({.rows = 20, .folder = folder(), .format = "jsonl", .seed = 11, .split = DataSplit::eval});
  EXPECT_EQ(made.data, folder() + "/trimodal_eval.jsonl");
  EXPECT_EQ(made.facts, folder() + "/facts_eval.json");
  const auto lines = lines_of(made.data);
  ASSERT_EQ(lines.size(), 20U);
  const TrimodalDemo demo({.size = 20, .seed = 11, .split = DataSplit::eval});
  for (std::int64_t i = 0; i < 20; ++i) {
    const auto row = nlohmann::json::parse(lines[static_cast<std::size_t>(i)]);
    const TrimodalSample sample = demo.sample(i);
    EXPECT_EQ(row.size(), 11U);
    EXPECT_EQ(row.at("dialogue"), sample.dialogue);
    EXPECT_EQ(row.at("shiptrack"), sample.track);
    EXPECT_EQ(row.at("feature_3").get<float>(), sample.numbers[2]);
    EXPECT_EQ(row.at("label"), sample.label);
  }
}

TEST_F(MakeTrimodal, VocabularyAndFactsDescribeTheData) {
  const MadeTrimodal made = make_trimodal({.rows = 5, .folder = folder()});
  EXPECT_EQ(lines_of(made.vocabulary), TrimodalDemo().vocabulary().words());
  const auto facts = nlohmann::json::parse(text_of(made.facts));
  EXPECT_EQ(facts.at("file"), "trimodal.csv");
  EXPECT_EQ(facts.at("rows"), 5);
  EXPECT_EQ(facts.at("num_labels"), 2);
  EXPECT_EQ(facts.at("vocab_size"), TrimodalDemo().vocab_size());
  EXPECT_DOUBLE_EQ(facts.at("best_accuracy"), 0.97);
  EXPECT_DOUBLE_EQ(facts.at("best_accuracy_of_some_parts"), 0.735);
  EXPECT_EQ(facts.at("primary_text"), "dialogue");
  EXPECT_EQ(facts.at("secondary_text"), "shiptrack");
  EXPECT_EQ(facts.at("tabular").size(), 8U);
  EXPECT_EQ(facts.at("meanings").size(), 8U);
}

TEST_F(MakeTrimodal, TheSameSeedWritesTheSameBytes) {
  const std::string first = text_of(make_trimodal({.rows = 30, .folder = folder(), .seed = 2}).data);
  EXPECT_EQ(text_of(make_trimodal({.rows = 30, .folder = folder(), .seed = 2}).data), first);
  EXPECT_NE(text_of(make_trimodal({.rows = 30, .folder = folder(), .seed = 3}).data), first);
}

TEST_F(MakeTrimodal, RefusesWhatCannotBeWritten) {
  EXPECT_EQ(thrown_text([&] { make_trimodal({.folder = folder(), .format = "json"}); }),
            "unknown format \"json\" for trimodal data\ndid you mean \"jsonl\"? (one of csv, jsonl)");
  EXPECT_EQ(thrown_text([&] { make_trimodal({.rows = 0, .folder = folder()}); }),
            "0 rows of trimodal data were asked for\nset --rows to 1 or more");
  EXPECT_EQ(thrown_text([] { make_trimodal({}); }), "no folder was named for the trimodal data\nset --out FOLDER");
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "file") << "in the way";
  EXPECT_EQ(
      thrown_text<DataError>([&] { make_trimodal({.folder = (folder_ / "file").string()}); }),
      fmt::format("cannot make folder {}/file: Not a directory\nname a folder that can be made", folder_.string()));
  std::filesystem::create_directories(folder_ / "made" / "trimodal.csv");
  EXPECT_EQ(thrown_text<DataError>([&] { make_trimodal({.folder = folder()}); }),
            fmt::format("cannot write {}/trimodal.csv: Is a directory\n"
                        "name a folder that may be written to, with room for the data",
                        folder()));
}

}  // namespace make_trimodal_test
}  // namespace orthant
