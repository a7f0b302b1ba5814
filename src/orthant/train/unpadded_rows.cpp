#include "orthant/train/unpadded_rows.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/data/trim_padding.h"

namespace orthant {
namespace {

// Which tokens of padded rows stay, and their rows.
struct KeptTokens {
  std::vector<std::int64_t> from;  // in the padded field, row after row
  nn::TokenRows rows;
};

// A row has one token at least: models read the first.
KeptTokens kept_tokens(const std::vector<std::int64_t>& lengths, std::int64_t columns, std::int64_t tokens) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  KeptTokens kept;
  std::vector<std::int64_t> row, position, starts, picked;
  const auto add = [&](std::int64_t number, std::int64_t length) {
    const auto first = static_cast<std::int64_t>(row.size());
    for (std::int64_t i = 0; i < length; ++i) {
      row.push_back(number);
      position.push_back(i);
      starts.push_back(first);
    }
  };
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    const auto number = static_cast<std::int64_t>(r), length = std::max<std::int64_t>(lengths[r], 1);
    picked.push_back(static_cast<std::int64_t>(row.size()));
    for (std::int64_t i = 0; i < length; ++i) kept.from.push_back(number * columns + i);
    add(number, length);
  }
  add(static_cast<std::int64_t>(lengths.size()), tokens - static_cast<std::int64_t>(row.size()));
  const auto line = [&](const std::vector<std::int64_t>& values) { return at::tensor(values, options).unsqueeze(0); };
  kept.rows = {line(row), line(position), line(starts), at::tensor(picked, options)};
  return kept;
}

// [1, tokens]: those that stay, then id 0, no target, nothing to attend to.
at::Tensor without_padding(const std::string& name, const at::Tensor& field, const KeptTokens& kept) {
  const auto tokens = kept.rows.row.size(1), real = static_cast<std::int64_t>(kept.from.size());
  at::Tensor out = at::zeros({1, tokens}, field.options());
  if (name == kLabelsField) out.fill_(kIgnoredLabel);
  out[0].narrow(0, 0, real).copy_(field.reshape({-1}).index_select(0, at::tensor(kept.from, at::kLong)));
  return out;
}

void unpad(Microbatch& part) {
  for (const auto& group : padded_fields(part.fields)) {
    const auto ids = std::ranges::find_if(group.names, [](const auto& name) { return name.ends_with("_ids"); });
    const at::Tensor& first = part.fields.at(group.names.front());
    std::int64_t tokens = 0;
    for (const auto length : group.lengths) tokens += std::max<std::int64_t>(length, 1);
    tokens = (tokens + kTokenBucket - 1) / kTokenBucket * kTokenBucket;
    if (ids == group.names.end() || tokens >= first.numel()) continue;
    auto kept = kept_tokens(group.lengths, first.size(1), tokens);
    for (const auto& name : group.names) part.fields[name] = without_padding(name, part.fields[name], kept);
    part.token_rows[*ids] = std::move(kept.rows);
  }
}

}  // namespace

std::vector<Microbatch> unpadded_microbatches(const Batch& batch, int count) {
  const auto size = batch.fields.begin()->second.size(0) / count;
  std::vector<Microbatch> parts(static_cast<std::size_t>(count));
  for (int m = 0; m < count; ++m) {
    Microbatch& part = parts[static_cast<std::size_t>(m)];
    part.first_row = batch.first_row + m * size;
    for (const auto& [name, field] : batch.fields) part.fields[name] = field.narrow(0, m * size, size).contiguous();
    unpad(part);
  }
  return parts;
}

}  // namespace orthant
