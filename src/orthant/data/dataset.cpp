#include "orthant/data/dataset.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string_view>

#include "orthant/base/error.h"

namespace orthant {
namespace {

bool is_mask(std::string_view name) {
  return name == "mask" || name.ends_with("_mask");
}

}  // namespace

const char* to_string(DataSplit split) {
  return split == DataSplit::train ? "train" : "eval";
}

double Dataset::weight_sum(const Fields& fields) const {
  const auto found = fields.find(kLabelsField);
  if (found == fields.end()) return 0;
  const at::Tensor labels = found->second.to(at::kLong).contiguous();
  const std::int64_t* label = labels.const_data_ptr<std::int64_t>();
  const auto classes = static_cast<std::int64_t>(class_weights_.size());
  double sum = 0;
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] < 0) continue;
    if (classes != 0 && label[i] >= classes) {
      throw DataError(fmt::format("a label is {}, but class_weights has {} entries", label[i], classes),
                      {.remedy = "give class_weights one entry per class"});
    }
    sum += classes == 0 ? 1.0 : class_weights_[static_cast<std::size_t>(label[i])];
  }
  return sum;
}

std::int64_t Dataset::tokens(const Fields& fields) const {
  bool masked = false;
  std::int64_t count = 0;
  for (const auto& [name, value] : fields) {
    if (!is_mask(name)) continue;
    masked = true;
    count += value.count_nonzero().item<std::int64_t>();
  }
  if (masked) return count;
  const auto ids = fields.find("input_ids");
  return ids == fields.end() ? 0 : ids->second.numel();
}

Totals Dataset::totals(std::span<const std::int64_t> indices) const {
  const Fields fields = rows(indices);
  return {.tokens = tokens(fields), .weight_sum = weight_sum(fields)};
}

void Dataset::make_padding(Fields& fields, std::int64_t first_padding_row) const {
  const auto found = fields.find(kLabelsField);
  if (found == fields.end()) return;
  at::Tensor& labels = found->second;
  labels.narrow(0, first_padding_row, labels.size(0) - first_padding_row).fill_(kIgnoredLabel);
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size) {
      throw InternalError(fmt::format("sample {} was asked for of a data set of {} samples", index, size));
    }
  }
}

}  // namespace orthant
