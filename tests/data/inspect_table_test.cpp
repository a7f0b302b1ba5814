#include "orthant/data/inspect_table.h"

#include <gtest/gtest.h>

#include "data/table_files.h"
#include "mesh/thrown_error.h"

namespace orthant {
namespace inspect_table_test {

using InspectTable = test::TableFiles;

TEST_F(InspectTable, LooksAtAllColumnsOfEveryFormat) {
  using Names = std::vector<std::string>;
  const auto columns = [](const std::string& path) {
    Names names;
    for (const auto& column : inspect_table({.path = path, .columns = {}, .tokenizer = {}, .progress = {}}).columns) {
      names.push_back(column.name);
    }
    return names;
  };
  EXPECT_EQ(columns(write("a.csv", "a,\"b, \"\"c\"\"\",d\r\n1,2,3\r\n")), (Names{"a", "b, \"c\"", "d"}));
  EXPECT_EQ(columns(write("a.tsv", "a b\tc\n")), (Names{"a b", "c"}));
  EXPECT_EQ(columns(write("a.json", R"([{"b": 1, "a": 2}, {"c": 3}])")), (Names{"b", "a", "c"}));
  EXPECT_EQ(columns(write("a.jsonl", "{\"b\": 1, \"a\": 2}\n{\"bad\": oops}\n{\"c\": null, \"b\": 2}\n")),
            (Names{"b", "a", "c"}))
      << "not those of a row that cannot be read";
  EXPECT_EQ(test::thrown_text<DataError>([&] { columns(write("none.json", "[]")); }),
            (folder_ / "none.json").string() + ": no rows with columns\nname a file with one object per row");
}

TEST_F(InspectTable, SaysWhatEachColumnHolds) {
  const auto path = write("t.csv", "label,x,text\nyes,1,one\nno,,two\nyes,NA,\nbad row\nyes,4,three\n");
  const auto facts = inspect_table({.path = path, .columns = {}, .tokenizer = {}, .progress = {}});
  EXPECT_EQ(facts.rows, 4);
  EXPECT_EQ(facts.bad.count, 1);
  EXPECT_EQ(facts.bad.reasons, (std::vector<std::string>{path + ":5:8: a row of 1 field, but the header has 3"}));
  ASSERT_EQ(facts.columns.size(), 3U);
  const auto& [label, x, text] = std::tie(facts.columns[0], facts.columns[1], facts.columns[2]);
  EXPECT_FALSE(label.is_numeric(facts.rows));
  EXPECT_EQ(label.values, (std::vector<std::pair<std::string, std::int64_t>>{{"yes", 3}, {"no", 1}}));
  EXPECT_TRUE(x.is_numeric(facts.rows));
  EXPECT_EQ(x.missing, 2) << "NA is a missing number";
  EXPECT_EQ(x.min, 1);
  EXPECT_EQ(x.mean, 2.5);
  EXPECT_EQ(x.max, 4);
  EXPECT_EQ(text.missing, 1);
  EXPECT_EQ(text.distinct, 3);
  EXPECT_EQ(text.examples, (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_FALSE(text.tokens);
}

TEST_F(InspectTable, CountsDifferentValuesUpToALimit) {
  std::string text = "x\n";
  for (int i = 0; i < 10100; ++i) text += std::to_string(i) + "\n";
  const auto facts =
      inspect_table({.path = write("many.csv", text), .columns = {"x"}, .tokenizer = {}, .progress = {}});
  EXPECT_EQ(facts.columns[0].distinct, 10000);
  EXPECT_TRUE(facts.columns[0].values.empty());
  EXPECT_EQ(facts.columns[0].max, 10099);
}

TEST_F(InspectTable, LongValuesAreShownCutAndCountedWhole) {
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xe2\x82\xac";
  const auto path = write("long.csv", "x\n" + euros + "1\n" + euros + "2\n" + euros + "1\n");
  const auto facts = inspect_table({.path = path, .columns = {"x"}, .tokenizer = {}, .progress = {}});
  const auto shown = euros.substr(0, 198) + "...";
  EXPECT_EQ(facts.columns[0].distinct, 2);
  EXPECT_EQ(facts.columns[0].examples, (std::vector<std::string>{shown, shown}));
  EXPECT_EQ(facts.columns[0].values, (std::vector<std::pair<std::string, std::int64_t>>{{shown, 2}, {shown, 1}}));
}

}  // namespace inspect_table_test
}  // namespace orthant
