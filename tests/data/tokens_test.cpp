#include "orthant/data/tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <thread>

#include "data/same_fields.h"
#include "mesh/thrown_error.h"
#include "orthant/data/field_checks.h"

namespace orthant {
namespace tokens_test {

using test::expect_same_fields;
using test::thrown_text;

std::vector<std::int64_t> first_indices(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

TEST(TokensDataset, LabelsAreTheInputsMovedByOneToken) {
  const TokensDataset data({.vocab_size = 50, .sequence_length = 9, .size = 6});
  const Fields fields = data.rows(first_indices(6));
  const at::Tensor ids = fields.at("input_ids");
  const at::Tensor labels = fields.at("labels");
  EXPECT_EQ(ids.sizes(), (std::vector<std::int64_t>{6, 9}));
  EXPECT_EQ(labels.sizes(), ids.sizes());
  EXPECT_TRUE(at::equal(ids.narrow(1, 1, 8), labels.narrow(1, 0, 8)));
  EXPECT_NO_THROW(check_fields(fields, {.vocab_sizes = {{"input_ids", 50}, {"labels", 50}}}, "tokens"));
}

TEST(TokensDataset, ASampleIsAFunctionOfSeedSplitAndIndex) {
  const TokensOptions options = {.vocab_size = 50, .sequence_length = 9, .size = 100, .seed = 4};
  const TokensDataset data(options);
  const std::vector<std::int64_t> some = {40, 7, 99};
  const std::vector<std::int64_t> one = {7};
  expect_same_fields(data.rows(some), TokensDataset(options).rows(some));
  EXPECT_TRUE(at::equal(data.rows(some).at("input_ids")[1], data.rows(one).at("input_ids")[0]));

  TokensOptions longer = options;
  longer.size = 5000;
  expect_same_fields(data.rows(some), TokensDataset(longer).rows(some));
  TokensOptions other_seed = options;
  other_seed.seed = 5;
  EXPECT_FALSE(at::equal(data.rows(some).at("labels"), TokensDataset(other_seed).rows(some).at("labels")));
  TokensOptions eval = options;
  eval.split = DataSplit::eval;
  EXPECT_FALSE(at::equal(data.rows(some).at("labels"), TokensDataset(eval).rows(some).at("labels")));
}

TEST(TokensDataset, ThreadsReadTheSameRows) {
  const TokensDataset data({.vocab_size = 64, .sequence_length = 40, .size = 32});
  const Fields expected = data.rows(first_indices(32));
  std::vector<Fields> found(4);
  std::vector<std::thread> threads;
  for (Fields& fields : found) threads.emplace_back([&] { fields = data.rows(first_indices(32)); });
  for (std::thread& thread : threads) thread.join();
  for (const Fields& fields : found) expect_same_fields(fields, expected);
}

// Trains counts of what follows each pair of tokens on one split and measures their loss on the other: it comes near
// the closed form from above, and predicting without structure stays near log V.
TEST(TokensDataset, EntropyRateIsTheLossOfAModelThatCounted) {
  constexpr int kVocab = 16;
  const TokensOptions options = {.vocab_size = kVocab, .sequence_length = 512, .size = 600, .seed = 9};
  const at::Tensor ids = TokensDataset(options).rows(first_indices(600)).at("input_ids");
  std::vector<double> counts(kVocab * kVocab * kVocab, 0.05);
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    const std::int64_t* id = ids.const_data_ptr<std::int64_t>() + row * 512;
    for (int t = 2; t < 512; ++t) ++counts[static_cast<std::size_t>((id[t - 2] * kVocab + id[t - 1]) * kVocab + id[t])];
  }
  TokensOptions eval = options;
  eval.split = DataSplit::eval;
  eval.size = 200;
  const at::Tensor fresh = TokensDataset(eval).rows(first_indices(200)).at("input_ids");
  double loss = 0;
  for (std::int64_t row = 0; row < fresh.size(0); ++row) {
    const std::int64_t* id = fresh.const_data_ptr<std::int64_t>() + row * 512;
    for (int t = 2; t < 512; ++t) {
      const auto state = counts.begin() + (id[t - 2] * kVocab + id[t - 1]) * kVocab;
      loss -= std::log(state[id[t]] / std::accumulate(state, state + kVocab, 0.0));
    }
  }
  loss /= static_cast<double>(200 * 510);
  const double best = TokensDataset(options).entropy_rate();
  EXPECT_LT(best, 0.6 * std::log(kVocab));
  EXPECT_NEAR(loss, best, 0.02);
}

TEST(TokensDataset, TheFirstTargetIsAsPredictableAsTheOthers) {
  constexpr int kVocab = 8;
  constexpr std::int64_t kSize = 40000;
  const TokensDataset data({.vocab_size = kVocab, .sequence_length = 1, .size = kSize});
  const Fields fields = data.rows(first_indices(kSize));
  const std::int64_t* id = fields.at("input_ids").const_data_ptr<std::int64_t>();
  const std::int64_t* label = fields.at("labels").const_data_ptr<std::int64_t>();
  std::array<std::array<double, kVocab>, kVocab> counts = {};
  for (std::int64_t i = 0; i < kSize; ++i)
    ++counts[static_cast<std::size_t>(id[i])][static_cast<std::size_t>(label[i])];
  double loss = 0;
  for (const auto& row : counts) {
    const double all = std::accumulate(row.begin(), row.end(), 0.0);
    for (const double count : row) loss -= count > 0 ? count * std::log(count / all) : 0.0;
  }
  EXPECT_NEAR(loss / kSize, data.entropy_rate(), 0.02);
}

TEST(TokensDataset, TotalsNeedNoReading) {
  const TokensDataset data({.vocab_size = 50, .sequence_length = 9, .size = 6});
  const std::vector<std::int64_t> indices = {3, 1};
  const Totals totals = data.totals(indices);
  EXPECT_EQ(totals.tokens, data.tokens(data.rows(indices)));
  EXPECT_EQ(totals.weight_sum, data.weight_sum(data.rows(indices)));
}

TEST(TokensDataset, RefusesSizesThatMakeNoText) {
  EXPECT_EQ(thrown_text([] { TokensDataset({.vocab_size = 7}); }),
            "data kind tokens needs a vocabulary of at least 8 tokens, but vocab_size is 7\n"
            "set model.vocab_size to 8 or more");
  EXPECT_EQ(thrown_text([] { TokensDataset({.vocab_size = 1'000'000'000}); }),
            "data kind tokens draws from at most 16777216 tokens, but vocab_size is 1000000000\n"
            "set model.vocab_size to 16777216 or less");
  EXPECT_EQ(
      thrown_text([] { TokensDataset({.sequence_length = 0}); }),
      "data.sequence_length is 0, but a sample needs at least one position\nset data.sequence_length to 1 or more");
  EXPECT_EQ(thrown_text([] { TokensDataset({.size = 0}); }),
            "data.size is 0, but a data set needs at least one sample\nset data.size to 1 or more");
}

}  // namespace tokens_test
}  // namespace orthant
