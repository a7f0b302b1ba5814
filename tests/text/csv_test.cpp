#include "orthant/text/csv.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/table_rows_of.h"

namespace orthant {
namespace csv_test {

TEST(Csv, QuotesWhatNeedsQuotes) {
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field(""), "");
  EXPECT_EQ(csv_field("hello, you"), "\"hello, you\"");
  EXPECT_EQ(csv_field("say \"no\""), "\"say \"\"no\"\"\"");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(csv_field("two\r"), "\"two\r\"");
  EXPECT_EQ(csv_line(std::vector<std::string>{"a", "b,c", ""}), "a,\"b,c\",\n");
}

TEST(Csv, WhatIsWrittenIsReadBack) {
  constexpr std::string_view kLetters = "ab,\"\n\r\t 1";
  std::vector<std::string> expected;
  std::string text = csv_line(std::vector<std::string>{"one", "t,w\"o", "three"});
  std::uint64_t state = 11;
  const auto draw = [&](std::uint64_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33) % below;
  };
  std::int64_t line = 2;
  for (int row = 0; row < 2000; ++row) {
    std::vector<std::string> fields(3);
    for (auto& field : fields) {
      for (std::uint64_t i = draw(6); i > 0; --i) field += kLetters[draw(kLetters.size())];
    }
    expected.push_back(std::to_string(line) + ":");
    for (const auto& field : fields) {
      expected.back() += field.empty() ? "-" : "[" + field + "]";
      line += std::count(field.begin(), field.end(), '\n');
    }
    ++line;
    text += csv_line(fields);
  }
  for (const std::size_t chunk : {1, 7, 64, 1 << 20}) {
    EXPECT_EQ(
        test::rows_of(test::reader_of(text, TableFormat::kCsv, {"one", "t,w\"o", "three"}, BadRows::kStop, chunk)),
        expected)
        << "read in chunks of " << chunk;
  }
}

}  // namespace csv_test
}  // namespace orthant
