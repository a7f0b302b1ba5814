#include "orthant/train/document_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mesh/thrown_error.h"

namespace orthant {
namespace document_scores_test {

TEST(DocumentScores, AddWindowsAndTellEveryDocumentInOrder) {
  std::vector<DocumentScore> told;
  DocumentScores scores(5, [&](const DocumentScore& score) { told.push_back(score); });
  scores.add(1, 3.0, 4);
  scores.add(1, 1.0, 1);
  EXPECT_EQ(told.size(), 1U) << "a window more of document 1 may come";
  scores.add(3, 2.0, 2);
  EXPECT_EQ(told.size(), 3U);
  scores.finish();
  ASSERT_EQ(told.size(), 5U);
  for (std::size_t d = 0; d < told.size(); ++d) EXPECT_EQ(told[d].document, static_cast<std::int64_t>(d));
  EXPECT_EQ(told[1].weight, 5);
  EXPECT_DOUBLE_EQ(told[1].loss(), 0.8);
  EXPECT_DOUBLE_EQ(told[1].perplexity(), std::exp(0.8));
  EXPECT_EQ(told[0].weight, 0);
  EXPECT_TRUE(std::isnan(told[0].loss()));
  EXPECT_TRUE(std::isnan(told[4].perplexity()));
}

TEST(DocumentScores, RefuseWindowsOutOfOrder) {
  DocumentScores scores(3, [](const DocumentScore&) {});
  scores.add(2, 1, 1);
  EXPECT_NE(test::thrown_text<InternalError>([&] { scores.add(1, 1, 1); }).find("document 1 after one of 2, of 3"),
            std::string::npos);
}

}  // namespace document_scores_test
}  // namespace orthant
