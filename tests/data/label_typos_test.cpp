#include "orthant/data/label_typos.h"

#include <gtest/gtest.h>

namespace orthant {
namespace label_typos_test {

using Labels = std::vector<ColumnValue>;

std::string described(const Labels& labels) {
  return describe_typos(label_typos(labels));
}

TEST(LabelTypos, RareLabelsNearAFrequentOneAreNamed) {
  EXPECT_EQ(described({{"spam", 200, 2}, {"ham", 150, 3}, {"hamm", 2, 41}, {"sapm", 1, 77}, {"eggs", 1, 90}}),
            "\"hamm\" (2 rows, line 41) may be \"ham\", \"sapm\" (1 row, line 77) may be \"spam\"");
  EXPECT_EQ(described({{"spam", 200, 2}, {"ham", 150, 3}, {"hamm", 3, 41}}), "") << "three rows are no slip";
  EXPECT_EQ(described({{"spam", 9, 2}, {"span", 2, 3}}), "") << "too few to know";
  EXPECT_EQ(described({{"disappointed", 10, 2}, {"dissapointed", 1, 0}}),
            "\"dissapointed\" (1 row) may be \"disappointed\"");
}

TEST(LabelTypos, SpellingsThatDifferByCaseOrBlanksAreNamedHoweverFrequent) {
  EXPECT_EQ(described({{"yes", 100, 2}, {"Yes", 90, 3}, {"no", 50, 4}, {"no ", 40, 5}}),
            "\"Yes\" (90 rows, line 3) may be \"yes\", \"no \" (40 rows, line 5) may be \"no\"");
}

TEST(LabelTypos, NumbersAndShortWordsAreClassesOfTheirOwn) {
  EXPECT_EQ(described({{"100", 50, 2}, {"101", 1, 3}, {"10", 1, 4}}), "");
  EXPECT_EQ(described({{"1", 50, 2}, {"2", 40, 3}, {"1.0", 30, 4}}), "\"1.0\" (30 rows, line 4) may be \"1\"");
  EXPECT_EQ(described({{"a", 50, 2}, {"b", 1, 3}, {"ab", 1, 4}}), "");
}

TEST(LabelTypos, ManyAreCounted) {
  Labels labels = {{"harbour", 100, 2}};
  for (const char* text : {"harbou", "harbor", "harbur", "arbour", "habour", "harbours", "harbouur"}) {
    labels.push_back({text, 1, 9});
  }
  const auto text = described(labels);
  EXPECT_TRUE(text.ends_with("\"habour\" (1 row, line 9) may be \"harbour\", and 2 more")) << text;
}

}  // namespace label_typos_test
}  // namespace orthant
