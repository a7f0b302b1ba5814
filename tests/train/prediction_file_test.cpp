#include "orthant/train/prediction_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "files/temporary_folder.h"
#include "mesh/thrown_error.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/text/table_reader.h"

namespace orthant {
namespace prediction_file_test {

using test::TemporaryFolder;
using test::thrown_text;

const std::vector<std::string> kColumns = {"row", "prediction", "probability_a,b"};

std::vector<PredictionCell> cells(std::int64_t row, const std::string& text, double number) {
  return {row, text, number};
}

TEST(PredictionFile, LinesHaveTheFormOfTheEnding) {
  const auto row = cells(7, "say \"a,b\"", 1.0 / 3);
  EXPECT_EQ(prediction_line(PredictionFormat::csv, kColumns, row), "7,\"say \"\"a,b\"\"\",0.333333333\n");
  EXPECT_EQ(prediction_line(PredictionFormat::tsv, kColumns, row), "7\t\"say \"\"a,b\"\"\"\t0.333333333\n");
  EXPECT_EQ(prediction_line(PredictionFormat::tsv, kColumns, cells(1, "a,b", 2)), "1\ta,b\t2\n");
  EXPECT_EQ(prediction_line(PredictionFormat::tsv, kColumns, cells(1, "a\tb", 2)), "1\t\"a\tb\"\t2\n");
  EXPECT_EQ(prediction_line(PredictionFormat::jsonl, kColumns, row),
            "{\"row\":7,\"prediction\":\"say \\\"a,b\\\"\",\"probability_a,b\":0.333333333}\n");
}

TEST(PredictionFile, WhatIsMissingOrNotFiniteIsNothing) {
  const std::vector<PredictionCell> row = {std::int64_t{1}, PredictionCell(), std::nan("")};
  EXPECT_EQ(prediction_line(PredictionFormat::csv, kColumns, row), "1,,\n");
  EXPECT_EQ(prediction_line(PredictionFormat::jsonl, kColumns, row),
            "{\"row\":1,\"prediction\":null,\"probability_a,b\":null}\n");
}

TEST(PredictionFile, TablesReadBackWhatWasWritten) {
  const TemporaryFolder folder;
  const std::string odd = "a\t\"b\",\r\nc";
  for (const char* name : {"a.csv", "a.tsv", "a.jsonl"}) {
    PredictionFile file(folder / name, kColumns);
    for (std::int64_t row = 0; row < 20000; ++row) file.add(cells(row, odd, 0.5));
    EXPECT_FALSE(is_there(folder / name)) << "it has no name before it is whole";
    file.finish();
    auto reader = TableReader::open(folder / name, {.columns = kColumns});
    while (reader.next()) ASSERT_EQ(reader.fields()[1].text, odd) << name;
    EXPECT_EQ(reader.rows(), 20000) << name;
  }
}

TEST(PredictionFile, AnOldFileStaysUntilTheNewOneIsWhole) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.csv", "old");
  {
    PredictionFile file(folder / "a.csv", kColumns);
    file.add(cells(1, "a", 1));
  }
  EXPECT_EQ(read_file(folder / "a.csv"), "old");
  EXPECT_EQ(names_in_folder(folder / "."), (std::vector<std::string>{"a.csv"})) << "nothing half-written is left";
  PredictionFile file(folder / "a.csv", {"row"});
  file.finish();
  EXPECT_EQ(read_file(folder / "a.csv"), "row\n");
}

TEST(PredictionFile, RefusesPathsBeforeAnythingIsComputed) {
  const TemporaryFolder folder;
  const auto data = (folder / "data.csv").string();
  write_file_atomically(data, "x");
  const auto refused = [&](const std::string& path) {
    return thrown_text([&] { check_prediction_path("--out", path, data); });
  };
  EXPECT_EQ(refused("scores.txt"),
            "scores.txt: the ending says how rows are written, and \".txt\" says nothing\n"
            "name a file that ends in .csv, .tsv or .jsonl");
  const auto nowhere = (folder / "none" / "a.csv").string();
  EXPECT_EQ(refused(nowhere), "--out " + nowhere + ": there is no folder " + (folder / "none").string() +
                                  "\nmake it, or name another file");
  EXPECT_EQ(refused(data), "--out " + data + ": is the file that the rows are read from\nname another file");
  std::filesystem::create_directory(folder / "b.csv");
  EXPECT_EQ(refused((folder / "b.csv").string()),
            "--out " + (folder / "b.csv").string() + ": is a folder\nname a file in it");
  EXPECT_NO_THROW(check_prediction_path("--out", folder / "scores.tsv", data));
}

}  // namespace prediction_file_test
}  // namespace orthant
