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
  EXPECT_FALSE(label.is_numeric());
  EXPECT_EQ(label.values, (std::vector<ColumnValue>{{"yes", 3, 2}, {"no", 1, 3}}));
  EXPECT_TRUE(x.is_numeric());
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
  EXPECT_EQ(facts.columns[0].values, (std::vector<ColumnValue>{{shown, 2, 2}, {shown, 1, 3}}));
}

TEST_F(InspectTable, AFewWordsAmongNumbersAreNamed) {
  std::string text = "few,many,all\n";
  for (int i = 0; i < 20; ++i) {
    text += i == 3 || i == 7 ? "NA,?,1\n" : i == 5 ? "forty,?,2\n" : i == 6 ? "-,3,none\n" : "1,2,3\n";
  }
  const auto path = write("words.csv", text);
  const auto facts = inspect_table({.path = path, .columns = {}, .tokenizer = {}, .progress = {}});
  const auto& [few, many, all] = std::tie(facts.columns[0], facts.columns[1], facts.columns[2]);
  EXPECT_FALSE(few.is_mostly_numeric()) << "2 of 18";
  EXPECT_EQ(few.words, 4) << "NA is a word in a column that is not one of numbers";
  EXPECT_EQ(describe_stray_words(few), "4 of 20 cells are not numbers, the first in line 7: \"forty\"");
  EXPECT_TRUE(holds_stray_words(many));
  EXPECT_EQ(describe_stray_words(many), "3 of 20 cells are not numbers, the first in line 5: \"?\"");
  EXPECT_FALSE(holds_stray_words(all));
  EXPECT_TRUE(all.is_numeric());
  const auto one = write("one.csv", "x\nNA\n1\n1\n1\n1\n1\n1\n1\n1\nten\n1\n");
  const auto column = inspect_table({.path = one, .columns = {"x"}, .tokenizer = {}, .progress = {}}).columns.front();
  EXPECT_FALSE(column.is_numeric());
  EXPECT_TRUE(column.is_mostly_numeric());
  EXPECT_EQ(column.missing, 1);
  EXPECT_EQ(describe_stray_words(column), "1 of 11 cells is not a number, in line 11: \"ten\"");
}

}  // namespace inspect_table_test
}  // namespace orthant
