#include "orthant/data/masked_tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/same_fields.h"
#include "mesh/thrown_error.h"
#include "orthant/data/fixed_dataset.h"
#include "orthant/data/tokens.h"

namespace orthant {
namespace masked_tokens_test {

using test::expect_same_fields;
using test::thrown_text;

constexpr std::int64_t kVocab = 1000;
constexpr std::int64_t kMask = 999;

std::shared_ptr<const Dataset> pseudo_text(std::int64_t size = 400, std::int64_t length = 128) {
  return std::make_shared<TokensDataset>(TokensOptions{.vocab_size = kVocab, .sequence_length = length, .size = size});
}

std::vector<std::int64_t> first_indices(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

TEST(MaskedTokens, OfTheTokensAboutFifteenPercentAreTargets) {
  const auto source = pseudo_text();
  const MaskedTokens data(source, {.vocab_size = kVocab, .mask_id = kMask, .seed = 3});
  const auto rows = first_indices(400);
  const Fields fields = data.rows(rows);
  const at::Tensor original = source->rows(rows).at("input_ids");
  const at::Tensor labels = fields.at("labels");
  const at::Tensor chosen = labels.ge(0);
  const auto share = [](const at::Tensor& part, const at::Tensor& of) {
    return part.count_nonzero().item<double>() / of.count_nonzero().item<double>();
  };
  EXPECT_NEAR(share(chosen, at::ones_like(chosen)), 0.15, 0.005);
  EXPECT_TRUE(at::equal(labels.masked_select(chosen), original.masked_select(chosen)));
  EXPECT_TRUE(labels.masked_select(chosen.logical_not()).eq(kIgnoredLabel).all().item<bool>());
  const at::Tensor ids = fields.at("input_ids");
  EXPECT_TRUE(at::equal(ids.masked_select(chosen.logical_not()), original.masked_select(chosen.logical_not())));
  EXPECT_NEAR(share(ids.eq(kMask).logical_and(chosen), chosen), 0.8, 0.02);
  EXPECT_NEAR(share(ids.eq(original).logical_and(chosen), chosen), 0.1, 0.02);
  const at::Tensor random = ids.ne(original).logical_and(ids.ne(kMask)).logical_and(chosen);
  EXPECT_NEAR(ids.masked_select(random).to(at::kDouble).mean().item<double>(), kVocab / 2.0, 40)
      << "any token, all alike";
  EXPECT_TRUE(fields.at("attention_mask").all().item<bool>());
  EXPECT_EQ(fields.at("attention_mask").scalar_type(), at::kBool);
  EXPECT_FALSE(fields.at("token_type_ids").any().item<bool>());
}

TEST(MaskedTokens, ARowIsAFunctionOfSeedAndIndex) {
  const auto source = pseudo_text();
  const MaskedTokens data(source, {.vocab_size = kVocab, .mask_id = kMask, .seed = 3});
  const MaskedTokens same(source, {.vocab_size = kVocab, .mask_id = kMask, .seed = 3});
  const MaskedTokens other(source, {.vocab_size = kVocab, .mask_id = kMask, .seed = 4});
  const std::vector<std::int64_t> some = {40, 7, 40};
  const Fields fields = data.rows(some);
  expect_same_fields(fields, same.rows(some));
  EXPECT_TRUE(at::equal(fields.at("labels")[0], fields.at("labels")[2]));
  EXPECT_FALSE(at::equal(fields.at("labels"), other.rows(some).at("labels")));
  EXPECT_EQ(data.totals(some).weight_sum, data.weight_sum(fields));
}

TEST(MaskedTokens, SpecialTokensAndPaddingAreNeverTargets) {
  const at::Tensor ids = at::full({50, 20}, 5, at::kLong);
  ids.select(1, 0).fill_(1);
  ids.select(1, 3).fill_(2);
  const at::Tensor mask = at::zeros({50, 20}, at::kBool);
  mask.narrow(1, 0, 6).fill_(true);
  const auto source = std::make_shared<FixedDataset>(Fields{{"input_ids", ids}, {"attention_mask", mask}},
                                                     FieldLimits{}, std::vector<double>{}, "rows");
  const MaskedTokens data(source, {.vocab_size = 10, .mask_id = 4, .special_ids = {2, 1}});
  const Fields fields = data.rows(first_indices(50));
  const at::Tensor chosen = fields.at("labels").ge(0);
  EXPECT_TRUE(chosen.any(1).all().item<bool>()) << "every row has a target";
  for (const int column : {0, 3, 6, 7, 19}) EXPECT_FALSE(chosen.select(1, column).any().item<bool>()) << column;
  EXPECT_TRUE(at::equal(fields.at("attention_mask"), mask));
}

TEST(MaskedTokens, ARowOfSpecialTokensHasNoTarget) {
  const auto source = std::make_shared<FixedDataset>(Fields{{"input_ids", at::full({1, 8}, 2, at::kLong)}},
                                                     FieldLimits{}, std::vector<double>{}, "rows");
  const MaskedTokens data(source, {.vocab_size = 10, .mask_id = 9, .special_ids = {2}});
  EXPECT_EQ(data.totals(std::vector<std::int64_t>{0}).weight_sum, 0);
}

TEST(MaskedTokens, RefusesMasksThatAreMissingOrOutsideOfTheVocabulary) {
  EXPECT_EQ(thrown_text([] { MaskedTokens(pseudo_text(), {.vocab_size = 10, .mask_id = 10}); }),
            "the mask token has id 10, but model.vocab_size is 10\nset model.vocab_size to 11 or more");
  EXPECT_EQ(thrown_text([] { MaskedTokens(pseudo_text(), {.vocab_size = 10}); }),
            "masked language modelling needs a mask token, and none is named\nset the mask id: that of the tokenizer's "
            "[MASK] or <mask>");
  EXPECT_EQ(thrown_text([] { MaskedTokens(pseudo_text(), {.vocab_size = 10, .fraction = 0}); }),
            "masked language modelling of a fraction 0 of the tokens\nset a fraction above 0 and up to 1");
}

}  // namespace masked_tokens_test
}  // namespace orthant
