#include "orthant/data/tokens.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orthant/base/error.h"
#include "orthant/base/random.h"

namespace orthant {
namespace {

constexpr std::int64_t kMaxGroups = 64;
constexpr double kNoise = 0.05;  // how often the next token is any token
constexpr std::array<double, 4> kShares = {0.4, 0.3, 0.2, 0.1};

void check_options(const TokensOptions& options) {
  if (options.vocab_size < TokensDataset::kMinVocabSize) {
    throw ConfigError(fmt::format("data kind tokens needs a vocabulary of at least {} tokens, but vocab_size is {}",
                                  TokensDataset::kMinVocabSize, options.vocab_size),
                      {.remedy = fmt::format("set model.vocab_size to {} or more", TokensDataset::kMinVocabSize)});
  }
  if (options.vocab_size > TokensDataset::kMaxVocabSize) {
    throw ConfigError(fmt::format("data kind tokens draws from at most {} tokens, but vocab_size is {}",
                                  TokensDataset::kMaxVocabSize, options.vocab_size),
                      {.remedy = fmt::format("set model.vocab_size to {} or less", TokensDataset::kMaxVocabSize)});
  }
  if (options.sequence_length < 1) {
    throw ConfigError(
        fmt::format("data.sequence_length is {}, but a sample needs at least one position", options.sequence_length),
        {.remedy = "set data.sequence_length to 1 or more"});
  }
  if (options.size < 1) {
    throw ConfigError(fmt::format("data.size is {}, but a data set needs at least one sample", options.size),
                      {.remedy = "set data.size to 1 or more"});
  }
}

// Sums of 1 / (id + 3): how often ids up to and including each one are drawn.
std::vector<double> falling_frequencies(std::int64_t vocab_size) {
  std::vector<double> sums(static_cast<std::size_t>(vocab_size));
  double sum = 0;
  for (std::size_t id = 0; id < sums.size(); ++id) {
    sum += 1.0 / (static_cast<double>(id) + 3.0);
    sums[id] = sum;
  }
  return sums;
}

}  // namespace

TokensDataset::TokensDataset(TokensOptions options) : options_(options) {
  check_options(options_);
}

const TokensDataset::Source& TokensDataset::source() const {
  std::call_once(drawn_, [&] { source_ = draw_source(options_); });
  return source_;
}

TokensDataset::Source TokensDataset::draw_source(const TokensOptions& options) {
  Source source;
  const RandomStream group_draws(options.seed, "data.tokens.groups");
  const auto vocab_size = static_cast<std::size_t>(options.vocab_size);
  const auto groups = static_cast<std::uint64_t>(std::min(options.vocab_size, kMaxGroups));
  source.group.resize(vocab_size);
  source.earlier_group.resize(vocab_size);
  for (std::size_t token = 0; token < vocab_size; ++token) {
    source.group[token] = static_cast<std::int32_t>(group_draws.bits(2 * token) % groups);
    source.earlier_group[token] = static_cast<std::int32_t>(group_draws.bits(2 * token + 1) % kEarlierGroups);
  }

  const RandomStream draws(options.seed, "data.tokens.successors");
  const std::vector<double> sums = falling_frequencies(options.vocab_size);
  source.successors.resize(groups * kEarlierGroups);
  for (std::size_t state = 0; state < source.successors.size(); ++state) {
    auto& taken = source.successors[state];
    for (std::size_t j = 0; j < taken.size(); ++j) {
      const double draw = draws.uniform(state * taken.size() + j) * sums.back();
      auto token = std::upper_bound(sums.begin(), sums.end() - 1, draw) - sums.begin();
      // A state's successors differ: one that is taken gives way to the next id.
      while (std::find(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(j), token) != taken.begin() + j) {
        token = (token + 1) % options.vocab_size;
      }
      taken[j] = token;
    }
  }
  return source;
}

std::int64_t TokensDataset::successor(const Source& source, std::int64_t vocab_size, std::int64_t last,
                                      std::int64_t before_last, double draw) {
  if (draw < kNoise) {
    const auto token = static_cast<std::int64_t>(draw / kNoise * static_cast<double>(vocab_size));
    return std::min(token, vocab_size - 1);
  }
  const std::int32_t earlier = before_last < 0 ? 0 : source.earlier_group[static_cast<std::size_t>(before_last)];
  const auto state = static_cast<std::size_t>(source.group[static_cast<std::size_t>(last)] * kEarlierGroups + earlier);
  double left = (draw - kNoise) / (1 - kNoise);
  for (std::size_t j = 0; j + 1 < kShares.size(); ++j) {
    if (left < kShares[j]) return source.successors[state][j];
    left -= kShares[j];
  }
  return source.successors[state].back();
}

void TokensDataset::fill_sample(std::int64_t index, std::span<std::int64_t> tokens, std::span<double> draws) const {
  const char* name = options_.split == DataSplit::train ? "data.tokens.train" : "data.tokens.eval";
  RandomStream(options_.seed, name, {static_cast<std::uint64_t>(index)}).fill_uniform(draws, 0, 0.0, 1.0);
  const auto first = static_cast<std::int64_t>(draws[0] * static_cast<double>(options_.vocab_size));
  tokens[0] = std::min(first, options_.vocab_size - 1);
  const Source& drawn = source();
  for (std::size_t t = 1; t < tokens.size(); ++t) {
    tokens[t] = successor(drawn, options_.vocab_size, tokens[t - 1], t == 1 ? -1 : tokens[t - 2], draws[t]);
  }
}

Fields TokensDataset::rows(std::span<const std::int64_t> indices) const {
  check_indices(indices, options_.size);
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(indices.size()), options_.sequence_length};
  const at::Tensor input_ids = at::empty(shape, at::kLong);
  const at::Tensor labels = at::empty(shape, at::kLong);
  std::vector<std::int64_t> tokens(length + 1);
  std::vector<double> draws(length + 1);
  for (std::size_t row = 0; row < indices.size(); ++row) {
    fill_sample(indices[row], tokens, draws);
    std::copy_n(tokens.begin(), length, input_ids.mutable_data_ptr<std::int64_t>() + row * length);
    std::copy_n(tokens.begin() + 1, length, labels.mutable_data_ptr<std::int64_t>() + row * length);
  }
  return {{"input_ids", input_ids}, {kLabelsField, labels}};
}

Totals TokensDataset::totals(std::span<const std::int64_t> indices) const {
  const std::int64_t count = static_cast<std::int64_t>(indices.size()) * options_.sequence_length;
  return {.tokens = count, .weight_sum = static_cast<double>(count)};
}

double TokensDataset::entropy_rate() const {
  const auto vocab_size = static_cast<double>(options_.vocab_size);
  const double rare = kNoise / vocab_size;
  double entropy = -(vocab_size - kSuccessors) * rare * std::log(rare);
  for (const double share : kShares) {
    const double likely = (1 - kNoise) * share + rare;
    entropy -= likely * std::log(likely);
  }
  return entropy;
}

}  // namespace orthant
