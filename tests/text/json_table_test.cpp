#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "text/table_rows_of.h"

namespace orthant {
namespace json_table_test {

using test::reader_of;
using test::rows_of;
using test::thrown_text;
using Rows = std::vector<std::string>;

Rows read(const std::string& text, TableFormat format, const std::vector<std::string>& columns = {"a", "b"}) {
  Rows rows = rows_of(reader_of(text, format, columns));
  for (const std::size_t chunk : {1, 2, 3, 5}) {
    EXPECT_EQ(rows_of(reader_of(text, format, columns, BadRows::kStop, chunk)), rows) << "read in chunks of " << chunk;
  }
  return rows;
}

std::string refusal(const std::string& text, TableFormat format = TableFormat::kJsonLines) {
  std::string found = thrown_text<DataError>([&] { rows_of(reader_of(text, format, {"a", "b"})); });
  EXPECT_EQ(thrown_text<DataError>([&] { rows_of(reader_of(text, format, {"a", "b"}, BadRows::kStop, 1)); }), found)
      << "read byte by byte";
  return found;
}

TEST(JsonTable, ReadsOneObjectALine) {
  EXPECT_EQ(read("{\"a\": 1, \"b\": \"x\"}\n\n{\"b\":\"y\",\"a\":-2.50e1}\r\n{\"a\":true,\"b\":false}",
                 TableFormat::kJsonLines),
            (Rows{"1:[1][x]", "3:[-2.50e1][y]", "4:[true][false]"}));
}

TEST(JsonTable, NullAbsentAndEmptyAreMissing) {
  EXPECT_EQ(read("{\"a\":null,\"b\":1}\n{}\n{\"a\":\"\",\"b\":0}\n", TableFormat::kJsonLines),
            (Rows{"1:-[1]", "2:--", "3:-[0]"}));
}

TEST(JsonTable, ReadsAnArrayOfObjectsOverManyLines) {
  EXPECT_EQ(read("\xef\xbb\xbf [\n {\"a\": 1,\n  \"b\": \"]}\\\"{\"},\n {\"c\": [{\"a\": 3}], \"a\": 2}\n] \n",
                 TableFormat::kJson),
            (Rows{"2:[1][]}\"{]", "4:[2]-"}));
  EXPECT_EQ(read("[]", TableFormat::kJson), Rows{});
  EXPECT_EQ(read(" {\"a\":1,\"b\":2}\n{\"a\":3}\n", TableFormat::kJson), (Rows{"1:[1][2]", "2:[3]-"}));
}

TEST(JsonTable, OneMemberMayFillTwoColumns) {
  EXPECT_EQ(read("{\"a\":\"\\u00e9\"}\n", TableFormat::kJsonLines, {"a", "a"}), (Rows{"1:[é][é]"}));
}

TEST(JsonTable, LargeNumbersKeepTheirText) {
  EXPECT_EQ(read("{\"a\": 12345678901234567890123, \"b\": -0}", TableFormat::kJsonLines),
            (Rows{"1:[12345678901234567890123][-0]"}));
}

TEST(JsonTable, RefusesNestedValuesInAskedColumnsOnly) {
  EXPECT_EQ(read("{\"a\":1,\"b\":2,\"c\":{\"a\":[]}}", TableFormat::kJsonLines), (Rows{"1:[1][2]"}));
  EXPECT_EQ(refusal("{\"c\":1, \"a\": [1]}"),
            "t.json:1:14: column \"a\" holds an array\nwrite a text, a number, true, false or null");
  EXPECT_EQ(refusal("{\"b\":{}}"),
            "t.json:1:6: column \"b\" holds an object\nwrite a text, a number, true, false or null");
}

TEST(JsonTable, RefusesWhatIsNotAnObject) {
  const std::string remedy = "write each row as {\"column\": value, ...}";
  EXPECT_EQ(refusal("{}\n 3\n"), "t.json:2:2: a row that is not an object\n" + remedy);
  EXPECT_EQ(refusal("[1]\n"), "t.json:1:1: a row that is not an object\n" + remedy);
  EXPECT_EQ(refusal("[{}, [2]]", TableFormat::kJson), "t.json:1:6: a row that is not an object\n" + remedy);
}

TEST(JsonTable, RefusesDamagedJson) {
  const std::string remedy = "write one object, with its keys and texts in quotes";
  EXPECT_EQ(refusal("{\"a\":1}\n{\"a\":x}\n"), "t.json:2:6: not valid JSON from here on\n" + remedy);
  EXPECT_EQ(refusal("{\"a\":1"), "t.json:1:7: not valid JSON from here on\n" + remedy);
  const std::string convert = "save the file as UTF-8: iconv -f WINDOWS-1252 -t UTF-8 t.json > t-utf8.json";
  EXPECT_EQ(refusal("{\"a\":\"\xff\"}"), "t.json:1:7: byte 0xff is not UTF-8\n" + convert);
  EXPECT_EQ(refusal("{\"a\":1}\n{\"b\":\"caf\xe9 noir\"}"), "t.json:2:10: byte 0xe9 is not UTF-8\n" + convert);
  EXPECT_EQ(refusal("{\"a\":1} {\"a\":2}"), "t.json:1:9: not valid JSON from here on\n" + remedy);
  EXPECT_EQ(refusal("{\"a\":1e999}"), "t.json:1:10: a number beyond a double\nwrite a smaller one, or null");
  EXPECT_EQ(refusal("{\"a\":1,\"a\":2}"), "t.json:1:8: key \"a\" comes twice\nkeep one of them");
}

TEST(JsonTable, RefusesArraysThatBreakOff) {
  const std::string remedy = "write an array of objects, [{...}, {...}], or one object per line";
  EXPECT_EQ(refusal("[{\"a\":1},\n {\"a\":", TableFormat::kJson), "t.json:2:2: this row breaks off\n" + remedy);
  EXPECT_EQ(refusal("[{\"a\":1}", TableFormat::kJson), "t.json:1:9: the array breaks off\n" + remedy);
  EXPECT_EQ(refusal("[{\"a\":1} {\"a\":1}]", TableFormat::kJson), "t.json:1:10: no comma between two rows\n" + remedy);
  EXPECT_EQ(refusal("[{\"a\":1}]x", TableFormat::kJson), "t.json:1:10: text after the end of the array\n" + remedy);
}

TEST(JsonTable, SkipsBadRows) {
  auto lines = reader_of("{\"a\":1}\nx\n{\"a\":[]}\n{\"a\":2}\n", TableFormat::kJsonLines, {"a"}, BadRows::kSkip);
  EXPECT_EQ(rows_of(lines), (Rows{"1:[1]", "4:[2]"}));
  EXPECT_EQ(lines.skipped().count, 2);
  auto array = reader_of("[{\"a\":1}, x, , {\"a\":[1 2]}, {\"a\":2},]", TableFormat::kJson, {"a"}, BadRows::kSkip);
  EXPECT_EQ(rows_of(array), (Rows{"1:[1]", "1:[2]"}));
  EXPECT_EQ(array.skipped().count, 4);
}

TEST(JsonTable, SuggestsTheColumnThatWasMeantAtTheEnd) {
  auto reader = reader_of("{\"title\":1,\"label\":2}\n{}\n", TableFormat::kJsonLines, {"title", "labels"});
  EXPECT_EQ(thrown_text([&] { rows_of(reader); }),
            "t.json: no row has a column \"labels\"\ndid you mean \"label\"? (one of title, label)");
}

}  // namespace json_table_test
}  // namespace orthant
