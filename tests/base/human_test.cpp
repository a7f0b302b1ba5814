#include "orthant/base/human.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error_text.h"

namespace orthant {
namespace human_test {

constexpr std::string_view kRemedy =
    "\n  fix: write a number and a unit, such as 4096, 64MiB (1024 * 1024) or 25MB (1000 * 1000)";

std::string refusal(std::string_view text) {
  return error_text<ConfigError>([&] { parse_bytes(text, "bucket_size"); });
}

std::string refusal_text(const std::string& quoted, const std::string& reason) {
  return "bucket_size: \"" + quoted + "\" is not a byte size: " + reason + std::string(kRemedy);
}

TEST(Human, FormatsBytesInPowersOf1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(3 << 19), "1.5 MiB");
  EXPECT_EQ(format_bytes(-(3 << 19)), "-1.5 MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::int64_t>::max()), "8 EiB");
}

TEST(Human, RoundsUpToTheNextUnitInsteadOfShowing1024) {
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(format_count(999'999), "1M");
}

TEST(Human, FormatsCountsInPowersOf1000) {
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(21'234'567), "21.2M");
  EXPECT_EQ(format_count(7'000'000'000), "7B");
  EXPECT_EQ(format_count(2'500'000'000'000'000), "2500T");
}

TEST(Human, FormatsDurationsFromNanosecondsToDays) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(850e-9), "850 ns");
  EXPECT_EQ(format_seconds(12.5e-6), "12.5 us");
  EXPECT_EQ(format_seconds(3.2e-3), "3.2 ms");
  EXPECT_EQ(format_seconds(45.31), "45.3 s");
  EXPECT_EQ(format_seconds(65), "1 min 5 s");
  EXPECT_EQ(format_seconds(2 * 3600 + 3 * 60), "2 h 3 min");
  EXPECT_EQ(format_seconds(28 * 3600), "1 d 4 h");
  EXPECT_EQ(format_seconds(-0.5), "-500 ms");
}

TEST(Human, RoundsDurationsIntoTheNextUnit) {
  EXPECT_EQ(format_seconds(0.99999), "1 s");
  EXPECT_EQ(format_seconds(59.99), "1 min");
  EXPECT_EQ(format_seconds(3599.9), "1 h");
  EXPECT_EQ(format_seconds(86399), "1 d");
}

TEST(Human, FormatsDurationsThatAreNoNumbers) {
  EXPECT_EQ(format_seconds(std::nan("")), "nan s");
  EXPECT_EQ(format_seconds(HUGE_VAL), "inf s");
  EXPECT_EQ(format_seconds(1e300), "1.16e+295 d");
}

TEST(Human, ParsesByteSizes) {
  EXPECT_EQ(parse_bytes("4096", "x"), 4096);
  EXPECT_EQ(parse_bytes("0", "x"), 0);
  EXPECT_EQ(parse_bytes("64MiB", "x"), 64 << 20);
  EXPECT_EQ(parse_bytes(" 25 MB ", "x"), 25'000'000);
  EXPECT_EQ(parse_bytes("1.5gib", "x"), 3LL << 29);
  EXPECT_EQ(parse_bytes("2 kB", "x"), 2000);
  EXPECT_EQ(parse_bytes("7B", "x"), 7);
  EXPECT_EQ(parse_bytes("9223372036854775807", "x"), std::numeric_limits<std::int64_t>::max());
}

TEST(Human, RefusesByteSizesWithAReason) {
  EXPECT_EQ(refusal(""), refusal_text("", "it is empty"));
  EXPECT_EQ(refusal("-1"), refusal_text("-1", "it is negative"));
  EXPECT_EQ(refusal("MiB"), refusal_text("MiB", "it has no number"));
  EXPECT_EQ(refusal("1.2.3MB"), refusal_text("1.2.3MB", "it has no number"));
  EXPECT_EQ(refusal("64M"), refusal_text("64M", "unknown unit \"M\""));
  EXPECT_EQ(refusal("1e3"), refusal_text("1e3", "unknown unit \"e3\""));
  EXPECT_EQ(refusal("1.5"), refusal_text("1.5", "it is not a whole number of bytes"));
  EXPECT_EQ(refusal("9223372036854775808"), refusal_text("9223372036854775808", "it is too large"));
  EXPECT_EQ(refusal("8388608TiB"), refusal_text("8388608TiB", "it is too large"));
}

TEST(Human, ShowsOnlyTheBeginningOfAnAbsurdByteSize) {
  EXPECT_LT(refusal(std::string(100'000, 'x')).size(), 400u);
}

}  // namespace human_test
}  // namespace orthant
