#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mesh/thrown_error.h"
#include "orthant/data/table_labels.h"
#include "orthant/data/table_numbers.h"

namespace orthant {
namespace table_cells_test {

using test::thrown_text;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

TEST(TableNumbers, ReadsNumbersAndTruthValues) {
  EXPECT_EQ(parse_table_number(" -2.5e3 "), -2500);
  EXPECT_EQ(parse_table_number("+7"), 7);
  EXPECT_EQ(parse_table_number("True"), 1);
  EXPECT_EQ(parse_table_number("false"), 0);
  for (const char* text : {"", "abc", "1,000", "0x10", "inf", "nan", "1e101", "-1e400", "12 13", "$5", "tru"}) {
    EXPECT_EQ(parse_table_number(text), std::nullopt) << text;
  }
}

TEST(TableNumbers, KnowsTheWordsForMissing) {
  for (const char* text : {"", "  ", "NA", "n/a", "NaN", " nan ", "NULL", "None", "#N/A", "<NA>"}) {
    EXPECT_TRUE(is_missing_number(text)) << text;
  }
  for (const char* text : {"0", "-", "nane", "missing"}) EXPECT_FALSE(is_missing_number(text)) << text;
}

TEST(TableNumbers, FitsMeanAndScaleOfAPart) {
  // Two columns, four rows.
  const std::vector<double> numbers = {1, 10, kMissing, 20, 3, 30, 100, kMissing};
  const auto first = fit_column(numbers, 2, 0, std::vector<std::int64_t>{0, 1, 2});
  ASSERT_TRUE(first);
  EXPECT_DOUBLE_EQ(first->mean, 2);
  EXPECT_DOUBLE_EQ(first->scale, 1);
  const auto second = fit_column(numbers, 2, 1, std::vector<std::int64_t>{0, 1, 2, 3});
  ASSERT_TRUE(second);
  EXPECT_DOUBLE_EQ(second->mean, 20);
  EXPECT_DOUBLE_EQ(second->scale, std::sqrt(200.0 / 3));
  EXPECT_FALSE(fit_column(numbers, 2, 0, std::vector<std::int64_t>{1}));
}

TEST(TableNumbers, AColumnWithoutSpreadHasScaleOne) {
  const std::vector<double> numbers(7, 0.1);
  const auto fitted = fit_column(numbers, 1, 0, std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(fitted);
  EXPECT_EQ(fitted->mean, 0.1);
  EXPECT_EQ(fitted->scale, 1);
}

TEST(TableNumbers, ASmallSpreadAroundALargeMeanIsKept) {
  const std::vector<double> numbers = {1.7e9, 1.7e9 + 1, 1.7e9 + 2};
  const auto fitted = fit_column(numbers, 1, 0, std::vector<std::int64_t>{0, 1, 2});
  ASSERT_TRUE(fitted);
  EXPECT_DOUBLE_EQ(fitted->mean, 1.7e9 + 1);
  EXPECT_DOUBLE_EQ(fitted->scale, std::sqrt(2.0 / 3));
}

std::vector<std::string> sorted_labels(const std::vector<std::string>& found) {
  LabelMap map;
  for (const auto& label : found) map.number(label);
  const auto classes = map.sort();
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(map.labels()[static_cast<std::size_t>(classes[i])], found[i]);
    EXPECT_EQ(map.number(found[i]), classes[i]);
  }
  return map.labels();
}

TEST(TableLabels, FoundLabelsAreSortedAsNumbersOrByBytes) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(sorted_labels({"10", "9", "-1", "2.5"}), (Labels{"-1", "2.5", "9", "10"}));
  EXPECT_EQ(sorted_labels({"10", "9", "b"}), (Labels{"10", "9", "b"}));
  EXPECT_EQ(sorted_labels({"true", "false"}), (Labels{"false", "true"}));
  EXPECT_EQ(sorted_labels({"1", "0"}), (Labels{"0", "1"}));
  EXPECT_EQ(sorted_labels({"é", "z", "Z"}), (Labels{"Z", "z", "é"}));
}

TEST(TableLabels, GivenLabelsStayInTheirOrder) {
  LabelMap map(std::vector<std::string>{"yes", "no"});
  EXPECT_EQ(map.number("no"), 1);
  EXPECT_EQ(map.number("maybe"), std::nullopt);
  EXPECT_EQ(map.sort(), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(map.labels(), (std::vector<std::string>{"yes", "no"}));
  EXPECT_EQ(thrown_text([] { LabelMap(std::vector<std::string>{"a", "b", "a"}); }),
            "label \"a\" is listed twice\nlist each label once");
}

TEST(TableLabels, RefusesTextThatIsNotUtf8AndTooManyClasses) {
  LabelMap map;
  EXPECT_EQ(map.number("caf\xe9"), std::nullopt);
  for (std::size_t i = 0; i < LabelMap::kMostClasses; ++i) map.number(std::to_string(i));
  EXPECT_EQ(map.number("7"), 7);
  EXPECT_EQ(thrown_text<DataError>([&] { map.number("x"); }),
            "the label column has more than 1000 different values, such as \"0\", \"1\" and \"x\"\n"
            "name a column of classes as label, or list the classes in data.labels");
}

TEST(TableLabels, BalancedWeightsMakeClassesCountAlike) {
  const std::vector<std::string> labels = {"a", "b"};
  EXPECT_EQ(balanced_weights(std::vector<std::int64_t>{30, 10}, labels), (std::vector<double>{40.0 / 60, 2}));
  EXPECT_EQ(thrown_text<DataError>([&] { balanced_weights(std::vector<std::int64_t>{4, 0}, labels); }),
            "balanced class weights: no row of the training part has the label \"b\"\n"
            "leave it out of data.labels, or give class_weights as a list");
}

}  // namespace table_cells_test
}  // namespace orthant
