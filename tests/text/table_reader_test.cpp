#include "orthant/text/table_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mesh/thrown_error.h"
#include "text/table_rows_of.h"

namespace orthant {
namespace {

using test::reader_of;
using test::rows_of;
using test::thrown_text;
using Rows = std::vector<std::string>;

class TableFiles : public testing::Test {
 protected:
  TableFiles() : folder_(std::filesystem::path(testing::TempDir()) / fmt::format("orthant_table_{}", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TableFiles() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(TableFiles, TheEndingChoosesTheFormat) {
  const TableOptions options{.columns = {"a"}};
  EXPECT_EQ(rows_of(TableReader::open(write("t.csv", "a,b\n1,2\n"), options)), (Rows{"2:[1]"}));
  EXPECT_EQ(rows_of(TableReader::open(write("t.tsv", "a\tb\n1\t2\n"), options)), (Rows{"2:[1]"}));
  EXPECT_EQ(rows_of(TableReader::open(write("t.jsonl", "{\"a\":1}\n"), options)), (Rows{"1:[1]"}));
  EXPECT_EQ(rows_of(TableReader::open(write("t.ndjson", "{\"a\":1}\n"), options)), (Rows{"1:[1]"}));
  EXPECT_EQ(rows_of(TableReader::open(write("t.json", "[{\"a\":1}]"), options)), (Rows{"1:[1]"}));
  const std::string other = write("t.jsnl", "{}");
  EXPECT_EQ(thrown_text([&] { TableReader::open(other, options); }),
            other +
                ": a table cannot be read from a file that ends in \".jsnl\"\n"
                "did you mean \".jsonl\"? (one of .csv, .tsv, .jsonl, .ndjson, .json)");
}

TEST_F(TableFiles, MissingFilesAreDataErrors) {
  const std::string path = (folder_ / "none.csv").string();
  EXPECT_TRUE(thrown_text<DataError>([&] { TableReader::open(path, {}); }).starts_with(path + ": open failed"));
  std::filesystem::create_directory(path);
  EXPECT_TRUE(thrown_text<DataError>([&] { TableReader::open(path, {}); }).starts_with(path + ": read"));
}

TEST_F(TableFiles, FilesLongerThanAChunkAreReadWhole) {
  std::string text = "id,text\n";
  constexpr int kRows = 120000;
  for (int i = 0; i < kRows; ++i) text += fmt::format("{},{}\n", i, i % 7 == 0 ? "\"a, \"\"b\"\"\nc\"" : "plain words");
  auto reader = TableReader::open(write("long.csv", text), {.columns = {"text", "id"}});
  for (int i = 0; i < kRows; ++i) {
    ASSERT_TRUE(reader.next()) << "row " << i;
    ASSERT_EQ(reader.fields()[1].text, fmt::to_string(i));
    ASSERT_EQ(reader.fields()[0].text, i % 7 == 0 ? "a, \"b\"\nc" : "plain words");
    ASSERT_EQ(reader.line(), i + 2 + (i + 6) / 7);
  }
  EXPECT_FALSE(reader.next());
}

TEST(TableReader, NumbersAreParsedStrictly) {
  const std::pair<const char*, double> good[] = {{"1", 1},   {" -2.5 ", -2.5}, {"1e3", 1000}, {"+.5", .5},
                                                 {"\t7", 7}, {"1.", 1},        {"-0", 0},     {"1E-2", .01}};
  for (const auto& [text, value] : good) EXPECT_EQ(parse_number(text), value) << text;
  for (const char* text : {"",
                           " ",
                           "nan",
                           "NaN",
                           "inf",
                           "-inf",
                           "infinity",
                           "0x10",
                           "1,000",
                           "1 2",
                           "1e999",
                           "--1",
                           "+-1",
                           "+",
                           "1f",
                           "NA",
                           "null",
                           "1_0",
                           "\xc2\xa0"
                           "1",
                           "\n1"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

TEST(TableReader, ABadNumberNamesFileLineAndColumn) {
  auto table = reader_of("x,y\n\"1\n1\",NA\n", TableFormat::kCsv, {"y"});
  ASSERT_TRUE(table.next());
  EXPECT_EQ(table.place(0), "t.csv:3:4");
  bool bad = false;
  EXPECT_EQ(thrown_text<DataError>([&] { table.number(0, bad); }),
            "t.csv:3:4: column \"y\": \"NA\" is not a finite number\n"
            "write it like -2.5 or 1e3, or leave it empty where it is missing");
}

TEST(TableReader, BadNumbersOfSkippedRowsAreShownShortAndEscaped) {
  const std::string umlauts = "\"\x01" + [] {
    std::string text;
    for (int i = 0; i < 30; ++i) text += "ü";
    return text;
  }() + "\"";
  auto reader = reader_of("x,y\n1," + umlauts + "\n2,\n3,4.5\n", TableFormat::kCsv, {"y"}, BadRows::kSkip);
  std::vector<std::optional<double>> numbers;
  while (reader.next()) {
    bool bad = false;
    const auto value = reader.number(0, bad);
    if (!bad) numbers.push_back(value);
  }
  EXPECT_EQ(numbers, (std::vector<std::optional<double>>{std::nullopt, 4.5}));
  EXPECT_EQ(reader.rows(), 2);
  EXPECT_EQ(reader.skipped().count, 1);
  EXPECT_EQ(reader.skipped().reasons,
            (Rows{"t.csv:2:4: column \"y\": \"\\x01üüüüüüüüüüüüüüüüüüü...\" is not a finite number"}));
}

TEST(TableReader, RejectedRowsCountAsSkipped) {
  auto reader = reader_of("label\ncat\ndog\n", TableFormat::kCsv, {"label"}, BadRows::kSkip);
  ASSERT_TRUE(reader.next());
  reader.reject(0, "no class is called cat");
  EXPECT_THROW(reader.reject(0, "twice"), InternalError);
  ASSERT_TRUE(reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.rows(), 1);
  EXPECT_EQ(reader.skipped().reasons, (Rows{"t.csv:2:1: column \"label\": no class is called cat"}));
  auto strict = reader_of("label\ncat\n", TableFormat::kCsv, {"label"});
  ASSERT_TRUE(strict.next());
  EXPECT_EQ(thrown_text<DataError>([&] { strict.reject(0, "no class is called cat", "name it in data.labels"); }),
            "t.csv:2:1: column \"label\": no class is called cat\nname it in data.labels");
}

TEST(TableReader, OnlyTheFirstReasonsAreKept) {
  std::string text = "a,b\n";
  for (int i = 0; i < 20; ++i) text += "1\n";
  auto reader = reader_of(text, TableFormat::kCsv, {"a"}, BadRows::kSkip);
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.skipped().count, 20);
  EXPECT_EQ(reader.skipped().reasons.size(), SkippedRows::kKept);
}

}  // namespace
}  // namespace orthant
