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
#include <mutex>
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
  static constexpr std::int64_t kMaxVocabSize = std::int64_t{1} << 24;

  // ConfigError for sizes below 1, or a vocabulary outside these.
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

  // What follows what: tables of the vocabulary's length.
  struct Source {
    std::vector<std::array<std::int64_t, kSuccessors>> successors;  // by group x kEarlierGroups + earlier group
    std::vector<std::int32_t> group;                                // of a token as the last one
    std::vector<std::int32_t> earlier_group;                        // of a token as the one before
  };

  static Source draw_source(const TokensOptions& options);
  const Source& source() const;  // drawn with the first sample: who only checks a configuration pays nothing
  static std::int64_t successor(const Source& source, std::int64_t vocab_size, std::int64_t last,
                                std::int64_t before_last, double draw);
  // All sequence_length + 1 tokens of a sample.
  void fill_sample(std::int64_t index, std::span<std::int64_t> tokens, std::span<double> draws) const;

  TokensOptions options_;
  mutable std::once_flag drawn_;
  mutable Source source_;
};

}  // namespace orthant
