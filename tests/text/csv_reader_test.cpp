#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "text/table_rows_of.h"

namespace orthant {
namespace csv_reader_test {

using test::reader_of;
using test::rows_of;
using test::thrown_text;
using Rows = std::vector<std::string>;

const std::string kQuoteRemedy = "put the field in quotes and double the quotes in it";

Rows read(const std::string& text, const std::vector<std::string>& columns = {"a", "b"}) {
  Rows rows = rows_of(reader_of(text, TableFormat::kCsv, columns));
  for (const std::size_t chunk : {1, 2, 3, 5}) {
    EXPECT_EQ(rows_of(reader_of(text, TableFormat::kCsv, columns, BadRows::kStop, chunk)), rows)
        << "read in chunks of " << chunk;
  }
  return rows;
}

std::string refusal(const std::string& text, const std::vector<std::string>& columns = {"a", "b"}) {
  std::string found = thrown_text<DataError>([&] { rows_of(reader_of(text, TableFormat::kCsv, columns)); });
  EXPECT_EQ(thrown_text<DataError>([&] { rows_of(reader_of(text, TableFormat::kCsv, columns, BadRows::kStop, 1)); }),
            found)
      << "read byte by byte";
  return found;
}

TEST(CsvReader, GivesTheColumnsAskedForInTheirOrder) {
  EXPECT_EQ(read("a,b,c\n1,2,3\n4,5,6\n", {"c", "a"}), (Rows{"2:[3][1]", "3:[6][4]"}));
  EXPECT_EQ(read("a,b\n1,2\n", {"b", "b"}), (Rows{"2:[2][2]"}));
  EXPECT_EQ(read("a,b\n1,2\n", {}), (Rows{"2:"}));
}

TEST(CsvReader, TakesEveryLineEndAndAByteOrderMark) {
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "a,b\r\n1,2\r\n3,4"),
            (Rows{"2:[1][2]", "3:[3][4]"}));
  EXPECT_EQ(read("a,b\n1,\"2\"\r\n3,\"4\"\r"), (Rows{"2:[1][2]", "3:[3][4]"}));
  EXPECT_EQ(read("a,b"), Rows{});
}

TEST(CsvReader, ReadsQuotedFields) {
  EXPECT_EQ(read("a,b\n\"x,y\",\"say \"\"no\"\"\"\n\"two\nlines\",z\nlast,row\n"),
            (Rows{"2:[x,y][say \"no\"]", "3:[two\nlines][z]", "5:[last][row]"}));
  EXPECT_EQ(read("a,b\n\"\",\"\"\"\"\n"), (Rows{"2:-[\"]"}));
  EXPECT_EQ(read("\"a\",\"b\"\n\"\r\n\",2"), (Rows{"2:[\r\n][2]"}));
}

TEST(CsvReader, EmptyFieldsAreMissing) {
  EXPECT_EQ(read("a,b\n,\n1,\n , \n"), (Rows{"2:--", "3:[1]-", "4:[ ][ ]"}));
  EXPECT_EQ(read("a\n\n1\n", {"a"}), (Rows{"2:-", "3:[1]"}));
}

TEST(CsvReader, TabsSeparateTsv) {
  EXPECT_EQ(rows_of(reader_of("a\tb\n1,5\t\"x\ty\"\n", TableFormat::kTsv, {"a", "b"})), (Rows{"2:[1,5][x\ty]"}));
}

TEST(CsvReader, RefusesRaggedRows) {
  EXPECT_EQ(refusal("a,b\n1,2\n1\n"),
            "t.csv:3:2: a row of 1 field, but the header has 2\n"
            "put fields that hold a comma or a line end in quotes, or complete the row");
  EXPECT_EQ(refusal("a,b\n1,2,3\n"),
            "t.csv:2:5: a row of 3 fields, but the header has 2\n"
            "put fields that hold a comma or a line end in quotes, or complete the row");
}

TEST(CsvReader, RefusesStrayQuotes) {
  EXPECT_EQ(refusal("a,b\n1,2\"3\n"),
            "t.csv:2:4: a quote inside a field that does not begin with one\n" + kQuoteRemedy);
  EXPECT_EQ(refusal("a,b\n\"1\"x,2\n"), "t.csv:2:4: text after the closing quote\n" + kQuoteRemedy);
  EXPECT_EQ(refusal("a,b\n\"1\n2\" ,2\n"), "t.csv:3:3: text after the closing quote\n" + kQuoteRemedy);
}

TEST(CsvReader, NamesTheOpeningOfAQuoteThatIsNeverClosed) {
  EXPECT_EQ(refusal("a,b\n1,2\n3,\"4\n5,6\n"), "t.csv:3:3: this quote is never closed\n" + kQuoteRemedy);
  auto reader = reader_of("a,b\n3,\"4\n5,6\n", TableFormat::kCsv, {"a"}, BadRows::kSkip);
  EXPECT_EQ(thrown_text<DataError>([&] { reader.next(); }), "t.csv:2:3: this quote is never closed\n" + kQuoteRemedy);
}

TEST(CsvReader, RefusesCarriageReturnsWithinALine) {
  EXPECT_EQ(refusal("a,b\n1\r2,3\n"),
            "t.csv:2:2: a carriage return that no line feed follows\n"
            "end lines with a line feed, and put fields that hold line ends in quotes");
}

TEST(CsvReader, EmptyLinesMayOnlyEndTheFile) {
  EXPECT_EQ(read("a,b\n1,2\n\n\r\n\n"), (Rows{"2:[1][2]"}));
  EXPECT_EQ(refusal("a,b\n\n1,2\n"), "t.csv:2:1: an empty line\nremove it");
}

TEST(CsvReader, RefusesAHeaderThatCannotServe) {
  const std::string remedy = "begin the file with a line of column names";
  EXPECT_EQ(refusal(""), "t.csv: there is no header line\n" + remedy);
  EXPECT_EQ(refusal("a,b,a\n"), "t.csv:1:1: columns 1 and 3 are both called \"a\"\ngive each column a name of its own");
  EXPECT_EQ(refusal("a,b\"\n"),
            "t.csv:1:4: in the header: a quote inside a field that does not begin with one\n" + kQuoteRemedy);
}

TEST(CsvReader, SuggestsTheColumnThatWasMeant) {
  EXPECT_EQ(thrown_text([] { reader_of("title,label\n", TableFormat::kCsv, {"titel"}); }),
            "t.csv: there is no column \"titel\"\ndid you mean \"title\"? (one of title, label)");
}

TEST(CsvReader, SkipsBadRowsAndKeepsTheFirstReasons) {
  auto reader = reader_of("a,b\n1,2\nx\n3,\"4\"5\n\n6,7\n8,9,10\n", TableFormat::kCsv, {"a", "b"}, BadRows::kSkip);
  EXPECT_EQ(rows_of(reader), (Rows{"2:[1][2]", "6:[6][7]"}));
  EXPECT_EQ(reader.rows(), 2);
  EXPECT_EQ(reader.skipped().count, 4);
  EXPECT_EQ(reader.skipped().reasons,
            (Rows{"t.csv:3:2: a row of 1 field, but the header has 2", "t.csv:4:6: text after the closing quote",
                  "t.csv:5:1: an empty line", "t.csv:7:5: a row of 3 fields, but the header has 2"}));
}

TEST(CsvReader, RefusesARowThatNeverEnds) {
  const std::string text = "a\n\"" + std::string(std::size_t{70} << 20, 'x');
  EXPECT_EQ(thrown_text<DataError>([&] { rows_of(reader_of(text, TableFormat::kCsv, {"a"}, BadRows::kSkip)); }),
            "t.csv:2:1: a row longer than 64 MiB\nlook for a quote that is never closed");
}

}  // namespace csv_reader_test
}  // namespace orthant
