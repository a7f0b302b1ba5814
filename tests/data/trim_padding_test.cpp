#include "orthant/data/trim_padding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace orthant {
namespace trim_padding_test {

using Columns = std::map<std::string, std::int64_t>;

at::Tensor ids(std::int64_t length) {
  return at::arange(2 * length, at::kLong).reshape({2, length});
}

at::Tensor mask(std::int64_t length, std::vector<std::int64_t> lengths) {
  const at::Tensor value = at::zeros({2, length}, at::kBool);
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    value[static_cast<std::int64_t>(row)].narrow(0, 0, lengths[row]).fill_(true);
  }
  return value;
}

TEST(TrimPadding, FewLengthsAreEighthsOfTheLongest) {
  EXPECT_EQ(step_of_few_lengths(512, 1), 64);
  EXPECT_EQ(step_of_few_lengths(128, 1), 16);
  EXPECT_EQ(step_of_few_lengths(100, 1), 13);
  EXPECT_EQ(step_of_few_lengths(100, 4), 16);  // of rows that cp=2 cuts
  EXPECT_EQ(step_of_few_lengths(5, 2), 2);
  EXPECT_EQ(step_of_few_lengths(0, 1), 1);
}

TEST(TrimPadding, EachTextIsCutToItsLongestRow) {
  Fields fields{{"primary_ids", ids(8)},        {"primary_mask", mask(8, {3, 5})},
                {"secondary_ids", ids(6)},      {"secondary_mask", mask(6, {6, 1})},
                {"tabular", at::zeros({2, 8})}, {"labels", at::zeros({2}, at::kLong)}};
  EXPECT_EQ(needed_columns(fields), (Columns{{"primary_ids", 5}, {"primary_mask", 5}}));
  trim_padding(fields);
  EXPECT_TRUE(at::equal(fields.at("primary_ids"), ids(8).narrow(1, 0, 5)));
  EXPECT_EQ(fields.at("secondary_ids").size(1), 6);
  EXPECT_EQ(fields.at("tabular").size(1), 8);
}

TEST(TrimPadding, MaskedLanguageModellingKeepsTokensAndTargets) {
  Fields fields{{"input_ids", ids(8)},
                {"attention_mask", mask(8, {2, 4})},
                {"token_type_ids", ids(8)},
                {"labels", at::full({2, 8}, kIgnoredLabel, at::kLong)}};
  EXPECT_EQ(needed_columns(fields),
            (Columns{{"attention_mask", 4}, {"input_ids", 4}, {"labels", 4}, {"token_type_ids", 4}}));
  fields["labels"][0][6] = 1;
  EXPECT_EQ(needed_columns(fields).at("input_ids"), 7);
  fields["attention_mask"] = fields["attention_mask"].to(at::kLong);
  EXPECT_EQ(needed_columns(fields).at("input_ids"), 7) << "a mask of integers";
}

TEST(TrimPadding, LanguageModelRowsEndAfterTheLastTarget) {
  Fields fields{{"input_ids", ids(8)}, {"labels", at::full({2, 8}, kIgnoredLabel, at::kLong)}};
  EXPECT_EQ(needed_columns(fields), (Columns{{"input_ids", 1}, {"labels", 1}})) << "at least one column";
  fields["labels"][1][2] = 0;
  EXPECT_EQ(needed_columns(fields), (Columns{{"input_ids", 3}, {"labels", 3}}));
  EXPECT_EQ(needed_columns(fields, 4), (Columns{{"input_ids", 4}, {"labels", 4}})) << "rounded up";
  EXPECT_EQ(needed_columns(fields, 5), (Columns{{"input_ids", 5}, {"labels", 5}}));
  EXPECT_EQ(needed_columns(fields, 16), Columns{}) << "where there is no room all stays";
  fields["labels"][0][7] = 0;
  EXPECT_EQ(needed_columns(fields), Columns{});
}

TEST(TrimPadding, LeavesOtherFieldsAlone) {
  EXPECT_EQ(needed_columns({{"image_mask", at::zeros({2, 4, 4}, at::kBool)}, {"image_ids", ids(4)}}), Columns{});
  EXPECT_EQ(needed_columns({{"x", ids(4)}, {"labels", at::full({2, 4}, kIgnoredLabel, at::kLong)}}), Columns{});
  EXPECT_EQ(needed_columns({{"input_ids", ids(4)}, {"labels", at::zeros({2}, at::kLong)}}), Columns{});
  EXPECT_EQ(needed_columns({{"a_mask", at::zeros({2, 4})}, {"a_ids", ids(4)}}), Columns{}) << "numbers are no mask";
  EXPECT_EQ(needed_columns({{"a_mask", mask(4, {1, 1})}, {"a_ids", ids(5)}}), (Columns{{"a_mask", 1}}));
}

}  // namespace trim_padding_test
}  // namespace orthant
