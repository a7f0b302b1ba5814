#include "orthant/data/dataset.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "data/same_fields.h"
#include "mesh/thrown_error.h"
#include "orthant/data/fixed_dataset.h"

namespace orthant {
namespace dataset_test {

using test::thrown_text;

FixedDataset three_rows(std::vector<double> class_weights = {}) {
  return FixedDataset({{"input_ids", at::arange(6, at::kLong).view({3, 2})},
                       {"labels", at::tensor({1, 0, 1}, at::kLong)},
                       {"tabular", at::arange(3, at::kFloat).view({3, 1})}},
                      {.vocab_sizes = {{"input_ids", 6}}, .num_labels = 2}, std::move(class_weights));
}

TEST(FixedDataset, GivesRowsInTheOrderAskedForAndTwiceWhenAskedTwice) {
  const FixedDataset data = three_rows();
  EXPECT_EQ(data.size(), 3);
  const std::vector<std::int64_t> indices = {2, 0, 2};
  test::expect_same_fields(data.rows(indices), {{"input_ids", at::tensor({4, 5, 0, 1, 4, 5}, at::kLong).view({3, 2})},
                                                {"labels", at::tensor({1, 1, 1}, at::kLong)},
                                                {"tabular", at::tensor({2.F, 0.F, 2.F}).view({3, 1})}});
}

TEST(FixedDataset, PaddingARowLeavesTheDataAlone) {
  const FixedDataset data = three_rows();
  const std::vector<std::int64_t> indices = {0, 1, 2};
  Fields fields = data.rows(indices);
  data.make_padding(fields, 1);
  EXPECT_TRUE(at::equal(fields.at("labels"), at::tensor({1, -100, -100}, at::kLong)));
  EXPECT_TRUE(at::equal(data.rows(indices).at("labels"), at::tensor({1, 0, 1}, at::kLong)));
}

TEST(FixedDataset, RefusesIndicesOutsideIt) {
  const FixedDataset data = three_rows();
  for (const std::int64_t index : {-1, 3}) {
    const std::vector<std::int64_t> indices = {0, index};
    EXPECT_THROW(data.rows(indices), InternalError) << index;
  }
}

TEST(Dataset, WeightSumCountsTargetsThatAreNotIgnored) {
  const FixedDataset data = three_rows();
  EXPECT_EQ(data.weight_sum({{"labels", at::tensor({1, -100, 0, 0}, at::kLong)}}), 3.0);
  EXPECT_EQ(data.weight_sum({{"labels", at::tensor({1, -100, 0, 0}, at::kLong).view({2, 2})}}), 3.0);
  EXPECT_EQ(data.weight_sum({{"pixels", at::ones({2})}}), 0.0);
}

TEST(Dataset, WeightSumUsesClassWeights) {
  const FixedDataset data = three_rows({0.5, 3.0});
  EXPECT_EQ(data.weight_sum({{"labels", at::tensor({1, -100, 0, 1}, at::kLong)}}), 6.5);
  const std::vector<std::int64_t> all = {0, 1, 2};
  EXPECT_EQ(data.totals(all).weight_sum, 6.5);
  EXPECT_EQ(thrown_text<DataError>([&] { data.weight_sum({{"labels", at::tensor({2}, at::kLong)}}); }),
            "a label is 2, but class_weights has 2 entries\ngive class_weights one entry per class");
}

TEST(Dataset, TokensAreTheTruePlacesOfMasksOrElseTheInputIds) {
  const FixedDataset data = three_rows();
  const at::Tensor mask = at::tensor({1, 1, 0, 1}, at::kLong).view({2, 2}).to(at::kBool);
  EXPECT_EQ(data.tokens({{"primary_mask", mask}, {"mask", mask}, {"input_ids", at::zeros({2, 9}, at::kLong)}}), 6);
  EXPECT_EQ(data.tokens({{"input_ids", at::zeros({2, 9}, at::kLong)}, {"unmask", mask}}), 18);
  EXPECT_EQ(data.tokens({{"pixels", at::ones({2})}}), 0);
}

}  // namespace dataset_test
}  // namespace orthant
