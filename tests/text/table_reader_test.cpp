#include "orthant/text/table_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mesh/thrown_error.h"
#include "text/table_rows_of.h"

namespace orthant {
namespace table_reader_test {

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
  EXPECT_TRUE(thrown_text<DataError>([&] { TableReader::open(path, {}); }).starts_with(path + ": it is a folder"));
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

TEST(TableReader, PlacesNameFileLineAndColumn) {
  auto table = reader_of("x,y\n\"1\n1\",NA\n", TableFormat::kCsv, {"y"});
  ASSERT_TRUE(table.next());
  EXPECT_EQ(table.place(0), "t.csv:3:4");
}

TEST(TableReader, KnowsAllColumns) {
  EXPECT_EQ(reader_of("a,\"b \"\"c\"\"\"\n1,2\n", TableFormat::kCsv, {"a"}).columns(), (Rows{"a", "b \"c\""}));
  auto json = reader_of("{\"b\": 1, \"a\": {\"x\": 2}}\n{\"c\": oops}\n{\"b\": 1, \"d\": 2}\n", TableFormat::kJsonLines,
                        {"b"}, BadRows::kSkip);
  EXPECT_EQ(json.columns(), Rows{});
  ASSERT_TRUE(json.next());
  EXPECT_EQ(json.columns(), (Rows{"b", "a"}));
  ASSERT_TRUE(json.next());
  EXPECT_EQ(json.columns(), (Rows{"b", "a", "d"})) << "not those of a bad row";
}

TEST(TableReader, EndingsTellTables) {
  for (const char* path : {"a.csv", "b/a.tsv", "a.jsonl", "a.ndjson", "a.json", "a.CSV"})
    EXPECT_TRUE(is_table(path)) << path;
  for (const char* path : {"a.txt", "csv", "a.csv.gz", ".csv/a"}) EXPECT_FALSE(is_table(path)) << path;
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

}  // namespace table_reader_test
}  // namespace orthant
