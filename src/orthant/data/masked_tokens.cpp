#include "orthant/data/masked_tokens.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/random.h"

namespace orthant {
namespace {

constexpr double kMasked = 0.8;
constexpr double kRandom = 0.1;

// Draws of a position: whether it is a target, what becomes of it, and the random token.
enum Draw : std::uint64_t { kChoice, kFate, kToken, kDraws };

double uniform(const RandomStream& stream, std::size_t position, Draw draw) {
  return stream.uniform(position * kDraws + draw);
}

}  // namespace

MaskedTokens::MaskedTokens(std::shared_ptr<const Dataset> source, MaskingOptions options)
    : source_(std::move(source)), options_(std::move(options)) {
  if (!(options_.fraction > 0 && options_.fraction <= 1)) {
    throw ConfigError(fmt::format("masked language modelling of a fraction {} of the tokens", options_.fraction),
                      {.remedy = "set a fraction above 0 and up to 1"});
  }
  if (options_.mask_id < 0) {
    throw ConfigError("masked language modelling needs a mask token, and none is named",
                      {.remedy = "set the mask id: that of the tokenizer's [MASK] or <mask>"});
  }
  if (options_.mask_id >= options_.vocab_size) {
    throw ConfigError(
        fmt::format("the mask token has id {}, but model.vocab_size is {}", options_.mask_id, options_.vocab_size),
        {.remedy = fmt::format("set model.vocab_size to {} or more", options_.mask_id + 1)});
  }
  std::ranges::sort(options_.special_ids);
}

bool MaskedTokens::may_be_target(std::int64_t id) const {
  return !std::ranges::binary_search(options_.special_ids, id);
}

void MaskedTokens::mask_row(std::int64_t index, std::span<std::int64_t> ids, const bool* real,
                            std::span<std::int64_t> labels) const {
  const RandomStream stream(options_.seed, "data.masked_tokens", {static_cast<std::uint64_t>(index)});
  const auto make_target = [&](std::size_t position) {
    labels[position] = ids[position];
    const double fate = uniform(stream, position, kFate);
    if (fate < kMasked) {
      ids[position] = options_.mask_id;
    } else if (fate < kMasked + kRandom) {
      const auto vocab_size = static_cast<double>(options_.vocab_size);
      ids[position] = static_cast<std::int64_t>(uniform(stream, position, kToken) * vocab_size);
    }
  };
  bool any = false;
  double least = 2;
  std::size_t fallback = 0;
  for (std::size_t position = 0; position < ids.size(); ++position) {
    if (!real[position] || !may_be_target(ids[position])) continue;
    const double choice = uniform(stream, position, kChoice);
    if (choice < options_.fraction) {
      make_target(position);
      any = true;
    } else if (choice < least) {
      least = choice;
      fallback = position;
    }
  }
  if (!any && least < 2) make_target(fallback);
}

Fields MaskedTokens::rows(std::span<const std::int64_t> indices) const {
  Fields found = source_->rows(indices);
  const at::Tensor ids = found.at("input_ids").contiguous();
  const auto mask = found.find("attention_mask");
  const at::Tensor real =
      mask != found.end() ? mask->second.to(at::kBool).contiguous() : at::ones(ids.sizes(), at::kBool);
  const at::Tensor labels = at::full(ids.sizes(), kIgnoredLabel, at::kLong);
  const auto length = static_cast<std::size_t>(ids.size(1));
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const auto first = row * length;
    mask_row(indices[row], {ids.mutable_data_ptr<std::int64_t>() + first, length}, real.const_data_ptr<bool>() + first,
             {labels.mutable_data_ptr<std::int64_t>() + first, length});
  }
  return {{"input_ids", ids},
          {"attention_mask", real},
          {"token_type_ids", at::zeros(ids.sizes(), at::kLong)},
          {kLabelsField, labels}};
}

}  // namespace orthant
