// Data kind `tokens`: pseudo-text drawn from a fixed random source, so that language models can be trained, compared
// and tested without any file. The source has structure to learn and a known entropy: the best loss is known by
// construction.
//
// Note [Token source]: the next token depends on the group of the last token (one of up to 64) and the group of the one
// before it (one of 4; 0 before the first token). Each such state has four different likely successors, taken with
// probabilities 0.4, 0.3, 0.2 and 0.1; one time in twenty the next token is any token instead, all alike. Successors
// are drawn so that low ids are frequent, as in text. Every state has the same conditional entropy, which is therefore
// the entropy rate, whatever the stationary distribution is. States and groups come from the seed, samples from (seed,
// split, index).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "orthant/data/dataset.h"

namespace orthant {

struct TokensOptions {
  std::int64_t vocab_size = 1024;
  std::int64_t sequence_length = 128;  // input positions = targets; a sample holds one token more
  std::int64_t size = 4096;
  std::uint64_t seed = 0;
  DataSplit split = DataSplit::train;
};

// Fields, both int64 [rows, sequence_length]: "input_ids" and "labels", which are the inputs moved by one token.
class TokensDataset : public Dataset {
 public:
  static constexpr std::int64_t kMinVocabSize = 8;

  // ConfigError for sizes below 1, or a vocabulary below kMinVocabSize.
  explicit TokensDataset(TokensOptions options);

  std::int64_t size() const override { return options_.size; }
  Fields rows(std::span<const std::int64_t> indices) const override;
  Totals totals(std::span<const std::int64_t> indices) const override;

  // In nats per token: the lowest mean loss that any model can reach on fresh samples.
  double entropy_rate() const;

  const TokensOptions& options() const { return options_; }

 private:
  static constexpr int kSuccessors = 4;
  static constexpr int kEarlierGroups = 4;

  void draw_source();
  std::int64_t successor(std::int64_t last, std::int64_t before_last, double draw) const;
  // All sequence_length + 1 tokens of a sample.
  void fill_sample(std::int64_t index, std::span<std::int64_t> tokens, std::span<double> draws) const;

  TokensOptions options_;
  std::vector<std::array<std::int64_t, kSuccessors>> successors_;  // by group x kEarlierGroups + earlier group
  std::vector<std::int32_t> group_;                                // of a token as the last one
  std::vector<std::int32_t> earlier_group_;                        // of a token as the one before
};

}  // namespace orthant
