#include "orthant/train/unpadded_rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/cuda/kernel.h"
#include "orthant/data/trim_padding.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/ops/attention/attention_heads.h"

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
  std::vector<std::int64_t> firsts = picked;
  firsts.push_back(static_cast<std::int64_t>(row.size()));
  add(static_cast<std::int64_t>(lengths.size()), tokens - static_cast<std::int64_t>(row.size()));
  const auto line = [&](const std::vector<std::int64_t>& values) { return at::tensor(values, options).unsqueeze(0); };
  kept.rows = {line(row), line(position), line(starts), at::tensor(picked, options), at::tensor(firsts, options),
               columns};
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

// The texts of a microbatch that may lose their padding, and how many tokens each of them then has.
struct Text {
  PaddedFields fields;
  std::string ids;  // the field of ids
  std::int64_t padded = 0;
  std::int64_t tokens = 0;
};

std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

std::vector<Text> texts_of(const Microbatch& part) {
  std::vector<Text> texts;
  for (auto& group : padded_fields(part.fields)) {
    const auto ids = std::ranges::find_if(group.names, [](const auto& name) { return name.ends_with("_ids"); });
    if (ids == group.names.end()) continue;
    Text text{.fields = group, .ids = *ids, .padded = part.fields.at(*ids).numel()};
    for (const auto length : group.lengths) text.tokens += std::max<std::int64_t>(length, 1);
    texts.push_back(std::move(text));
  }
  return texts;
}

// See Note [Few token totals].
void share_totals(std::vector<std::vector<Text>>& texts) {
  for (std::size_t t = 0; t < texts.front().size(); ++t) {
    std::int64_t all = 0, most = 0;
    for (const auto& text : texts.front()) all += text.padded;
    for (const auto& part : texts) most = std::max(most, part[t].tokens);
    const auto step = rounded_up((all + kTokenTotals - 1) / kTokenTotals, kTokenBucket);
    for (auto& part : texts) part[t].tokens = rounded_up(most, step);
  }
}

void unpad(Microbatch& part, const Text& text) {
  const auto tokens = rounded_up(text.tokens, kTokenBucket);
  if (tokens >= text.padded) return;
  auto kept = kept_tokens(text.fields.lengths, part.fields.at(text.ids).size(1), tokens);
  for (const auto& name : text.fields.names) part.fields[name] = without_padding(name, part.fields[name], kept);
  part.token_rows[text.ids] = std::move(kept.rows);
}

// Why this attention does not run over rows of different lengths on a card; empty: it does.
std::string attention_obstacle(const Attributes& attention) {
  if (attention.integer("window") > 0) return "its attention has a sliding window";
  const auto size = attention.integer("head_size");
  if (nn::device::serves_kernel_heads(size)) return {};
  return fmt::format("no kernel of this card serves heads of {} channels", size);
}

}  // namespace

std::vector<Microbatch> unpadded_microbatches(const Batch& batch, int count, bool few_totals) {
  const auto size = batch.fields.begin()->second.size(0) / count;
  std::vector<Microbatch> parts(static_cast<std::size_t>(count));
  std::vector<std::vector<Text>> texts;
  for (int m = 0; m < count; ++m) {
    Microbatch& part = parts[static_cast<std::size_t>(m)];
    part.first_row = batch.first_row + m * size;
    for (const auto& [name, field] : batch.fields) part.fields[name] = field.narrow(0, m * size, size).contiguous();
    texts.push_back(texts_of(part));
  }
  if (few_totals) share_totals(texts);
  for (std::size_t m = 0; m < parts.size(); ++m) {
    for (const auto& text : texts[m]) unpad(parts[m], text);
  }
  return parts;
}

std::string padding_obstacle(const GraphSpec& graph, const Precision& precision, at::Device device) {
  if (device.is_cpu()) return {};
  if (!nn::device::has_kernels(device) || !cuda::KernelLibrary::of_process().available()) {
    return fmt::format("kernels of {} cannot be compiled", device.str());
  }
  if (precision.compute != DType::bfloat16 && precision.compute != DType::float16) {
    return fmt::format("kernels take attention in bfloat16 and float16, and compute is {}",
                       dtype_name(precision.compute));
  }
  for (const auto& unit : graph.units) {
    if (!unit.body) continue;
    for (const auto& operation : unit.body->operations) {
      if (operation.attributes.find("causal") == nullptr) continue;
      if (auto why = attention_obstacle(operation.attributes); !why.empty()) return unit.name + ": " + why;
    }
  }
  return {};
}

}  // namespace orthant
