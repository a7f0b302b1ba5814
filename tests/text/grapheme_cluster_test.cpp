#include "orthant/text/grapheme_cluster.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace orthant {
namespace grapheme_cluster_test {

std::vector<std::string> clusters(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = grapheme_cluster_end(text, at);
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

using Clusters = std::vector<std::string>;

TEST(GraphemeCluster, KeepsMarksJoinersAndLineEndsTogether) {
  EXPECT_EQ(clusters("ab"), (Clusters{"a", "b"}));
  EXPECT_EQ(clusters("e\u0301\u0302x"), (Clusters{"e\u0301\u0302", "x"}));
  EXPECT_EQ(clusters("\r\n\n\ra"), (Clusters{"\r\n", "\n", "\r", "a"}));
  EXPECT_EQ(clusters("\U0001f469\u200d\U0001f680x"), (Clusters{"\U0001f469\u200d\U0001f680", "x"}));
  EXPECT_EQ(clusters("\u1100\u1161\u11a8\u1100"), (Clusters{"\u1100\u1161\u11a8", "\u1100"}));
}

TEST(GraphemeCluster, JoinsConsonantsThatALinkerLiesBetween) {
  EXPECT_EQ(clusters("\u0915\u094d\u0937"), Clusters{"\u0915\u094d\u0937"});
  EXPECT_EQ(clusters("\u0915\u0301\u094d\u200d\u0937"), Clusters{"\u0915\u0301\u094d\u200d\u0937"});
  EXPECT_EQ(clusters("\u0915\u0301\u0937"), (Clusters{"\u0915\u0301", "\u0937"})) << "no linker";
  EXPECT_EQ(clusters("a\u094d\u0937"), (Clusters{"a\u094d", "\u0937"})) << "no consonant";
  EXPECT_EQ(clusters("\u0915\u094d\u200c\u0937"), (Clusters{"\u0915\u094d\u200c", "\u0937"})) << "a non-joiner";
  EXPECT_EQ(clusters("\u1000\u1039\u1000"), Clusters{"\u1000\u1039\u1000"}) << "since Unicode 16";
}

TEST(GraphemeCluster, KnowsMarksThatAreNewerThanTheTables) {
  EXPECT_EQ(clusters("a\u0897b"), (Clusters{"a\u0897", "b"})) << "extends since Unicode 16";
  EXPECT_EQ(clusters("a\u1acfb"), (Clusters{"a\u1acf", "b"})) << "extends since Unicode 17";
  EXPECT_EQ(clusters("a\U000113b9b"), (Clusters{"a\U000113b9", "b"})) << "a spacing mark since Unicode 16";
  EXPECT_EQ(clusters("a\U000113d1b"), (Clusters{"a", "\U000113d1b"})) << "stands before a cluster";
}

}  // namespace grapheme_cluster_test
}  // namespace orthant
