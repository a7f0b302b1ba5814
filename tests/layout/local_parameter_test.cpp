#include "orthant/layout/local_parameter.h"

#include <gtest/gtest.h>

#include "layout/naive_layout.h"
#include "layout/random_graph.h"
#include "mesh/thrown_error.h"
#include "orthant/base/error.h"

namespace orthant {
namespace local_parameter_test {

using test::thrown_text;

ParameterSpec split_parameter(Shape shape, Split split) {
  return test::named_parameter("wk.weight", std::move(shape), std::move(split));
}

Split along(int dim) {
  Split split;
  split.dim = dim;
  return split;
}

TEST(BalancedRange, CutsAtFloorsAndCoversEverything) {
  EXPECT_EQ(balanced_range(10, 4, 0), (Range{0, 2}));
  EXPECT_EQ(balanced_range(10, 4, 1), (Range{2, 5}));
  EXPECT_EQ(balanced_range(10, 4, 3), (Range{7, 10}));
  for (std::int64_t n : {0, 1, 2, 3, 7, 64, 101}) {
    for (int degree = 1; degree < 9; ++degree) {
      for (int r = 0; r < degree; ++r) {
        EXPECT_EQ(balanced_range(n, degree, r), (Range{r * n / degree, (r + 1) * n / degree}));
      }
    }
  }
}

TEST(BalancedRange, DoesNotOverflow) {
  const std::int64_t n = std::int64_t{1} << 62;
  EXPECT_EQ(balanced_range(n, 1 << 20, (1 << 20) - 1).end, n);
}

TEST(LocalParameter, ReplicatedIsWholeAndHeldByAll) {
  const ParameterSpec norm = test::named_parameter("norm", {8});
  const LocalParameter local = local_parameter(norm, 4, 2);
  EXPECT_EQ(local.shape, (Shape{8}));
  EXPECT_EQ(local.boxes.at(0).lengths, (Shape{8}));
  EXPECT_EQ(local.holders, (std::vector<Range>{{0, 4}}));
  EXPECT_TRUE(copy_holders(norm, 4, 2).empty());
}

TEST(LocalParameter, FusedProjectionTakesItsPartOfEachBlock) {
  // 8 query heads, 2 key heads and 2 value heads of 4, over 4 ranks.
  const auto qkv = split_parameter({48, 5}, {.dim = 0, .blocks = {32, 8, 8}, .granule = 4});
  const LocalParameter local = local_parameter(qkv, 4, 3);
  EXPECT_EQ(local.shape, (Shape{16, 5}));
  ASSERT_EQ(local.boxes.size(), 3U);
  EXPECT_EQ(local.boxes[0].offsets, (Shape{24, 0}));
  EXPECT_EQ(local.boxes[0].lengths, (Shape{8, 5}));
  EXPECT_EQ(local.boxes[1].offsets, (Shape{36, 0}));
  EXPECT_EQ(local.boxes[2].offsets, (Shape{44, 0}));
  EXPECT_EQ(local.boxes[2].lengths, (Shape{4, 5}));
  EXPECT_EQ(copy_holders(qkv, 4, 3), (std::vector<Range>{{3, 4}, {2, 4}, {2, 4}}));
}

TEST(LocalParameter, VocabularyNeedNotDivide) {
  const auto vocabulary = split_parameter({10, 3}, along(0));
  EXPECT_EQ(local_parameter(vocabulary, 4, 1).shape, (Shape{3, 3}));
  EXPECT_EQ(local_parameter(vocabulary, 4, 2).boxes.at(0).offsets, (Shape{5, 0}));
}

TEST(LocalParameter, HoldsWhatTheNaiveRuleSays) {
  test::RandomGraphs random(11);
  for (int round = 0; round < 400; ++round) {
    const int degree = 1 + random.below(6);
    const ParameterSpec parameter = random.parameter("p", {degree});
    const std::int64_t total = num_elements(parameter.shape);
    for (int t = 0; t < degree; ++t) {
      const LocalParameter local = local_parameter(parameter, degree, t);
      const test::Elements expected = test::local_elements(parameter, degree, t);
      ASSERT_EQ(num_elements(local.shape), static_cast<std::int64_t>(expected.size())) << "round " << round;
      test::Elements found;
      for (const TensorBox& box : local.boxes) {
        EXPECT_EQ(box.global_shape, parameter.shape);
        const auto part = test::box_elements(parameter.shape, box.offsets, box.lengths);
        found.insert(found.end(), part.begin(), part.end());
      }
      std::sort(found.begin(), found.end());
      ASSERT_EQ(found, expected) << "round " << round << " tp " << t << " of " << degree;
      for (std::size_t b = 0; b < local.boxes.size(); ++b) {
        for (int other = 0; other < degree; ++other) {
          const bool same = local_parameter(parameter, degree, other).boxes[b].offsets == local.boxes[b].offsets;
          const Range holders = local.holders[b];
          EXPECT_EQ(same, other >= holders.begin && other < holders.end) << "round " << round << " box " << b;
        }
      }
    }
    EXPECT_GE(total, 1);
  }
}

TEST(LocalParameter, RefusesRanksThatAreNoMultipleOfTheCopies) {
  const auto keys = split_parameter({48, 5}, {.dim = 0, .blocks = {}, .granule = 16});
  EXPECT_EQ(thrown_text([&] { local_parameter(keys, 4, 0); }),
            "parameter wk.weight: tp=4 does not fit dim 0 of shape [48, 5], where a block has 3 granules of 16: "
            "more ranks than granules must be a multiple of them\nset tp to 1, 2, 3 or 6");
}

TEST(LocalParameter, RefusesSplitsThatDoNotFitTheShape) {
  EXPECT_EQ(thrown_text([] { local_parameter(split_parameter({8}, along(1)), 2, 0); }),
            "parameter wk.weight: split along dim 1, but its shape is [8]\nsplit along a dim of the shape");
  EXPECT_EQ(
      thrown_text([] { local_parameter(split_parameter({8}, {.dim = 0, .blocks = {4, 2}, .granule = 1}), 2, 0); }),
      "parameter wk.weight: blocks [4, 2] with granules of 1 do not make up dim 0 of shape [8]\n"
      "give blocks that are multiples of the granule and add up to the dim");
  EXPECT_THROW(local_parameter(split_parameter({8}, {.dim = 0, .blocks = {}, .granule = 3}), 2, 0), ConfigError);
  EXPECT_THROW(local_parameter(split_parameter({8}, {.dim = 0, .blocks = {}, .granule = 0}), 2, 0), ConfigError);
  EXPECT_EQ(thrown_text<InternalError>([] { local_parameter(split_parameter({8}, along(0)), 2, 2); }),
            "parameter wk.weight: no tp coordinate 2 of degree 2\n");
}

}  // namespace local_parameter_test
}  // namespace orthant
