#include "orthant/data/trim_padding.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace orthant {
namespace {

constexpr const char* kAttentionMask = "attention_mask";
constexpr std::string_view kMaskEnding = "_mask";

bool is_sequence(const at::Tensor& field) {
  return field.dim() == 2 && field.is_cpu() && (field.scalar_type() == at::kLong || field.scalar_type() == at::kBool);
}

const at::Tensor* find_sequence(const Fields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found != fields.end() && is_sequence(found->second) ? &found->second : nullptr;
}

template <typename T, typename Counts>
std::vector<std::int64_t> ends_of(const at::Tensor& field, const Counts& counts) {
  const at::Tensor values = field.contiguous();
  const auto length = values.size(1);
  std::vector<std::int64_t> ends;
  for (std::int64_t row = 0; row < values.size(0); ++row) {
    const T* value = values.const_data_ptr<T>() + row * length;
    auto end = length;
    while (end > 0 && !counts(value[end - 1])) --end;
    ends.push_back(end);
  }
  return ends;
}

// Per row one past the last column with a token (of a mask) or a target (of labels).
std::vector<std::int64_t> last_columns(const at::Tensor& field, bool labels) {
  if (field.scalar_type() == at::kBool) return ends_of<bool>(field, [](bool real) { return real; });
  return ends_of<std::int64_t>(field, [labels](std::int64_t value) { return labels ? value >= 0 : value != 0; });
}

// The fields of these names that are as long as the first one.
std::vector<std::string> together(const Fields& fields, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  const auto length = fields.at(names.front()).size(1);
  for (const auto& name : names) {
    const auto* field = find_sequence(fields, name);
    if (field != nullptr && field->size(1) == length) found.push_back(name);
  }
  return found;
}

}  // namespace

std::vector<PaddedFields> padded_fields(const Fields& fields) {
  std::vector<PaddedFields> found;
  for (const auto& [name, field] : fields) {
    if (!name.ends_with(kMaskEnding) || name == kAttentionMask || !is_sequence(field)) continue;
    const auto prefix = name.substr(0, name.size() - kMaskEnding.size());
    found.push_back({together(fields, {name, prefix + "_ids", prefix + "_types"}), last_columns(field, false)});
  }
  const auto* mask = find_sequence(fields, kAttentionMask);
  const auto* ids = find_sequence(fields, "input_ids");
  const auto* labels = find_sequence(fields, kLabelsField);
  if (mask != nullptr) {
    auto lengths = last_columns(*mask, false);
    if (labels != nullptr && labels->size(1) == mask->size(1)) {
      const auto targets = last_columns(*labels, true);
      for (std::size_t row = 0; row < lengths.size(); ++row) lengths[row] = std::max(lengths[row], targets[row]);
    }
    found.push_back({together(fields, {kAttentionMask, "input_ids", "token_type_ids", "position_ids", "document_starts",
                                       kLabelsField}),
                     std::move(lengths)});
  } else if (ids != nullptr && labels != nullptr && ids->size(1) == labels->size(1)) {
    found.push_back({together(fields, {"input_ids", "position_ids", "document_starts", kLabelsField}),
                     last_columns(*labels, true)});
  }
  return found;
}

std::map<std::string, std::int64_t> needed_columns(const Fields& fields, std::int64_t multiple) {
  std::map<std::string, std::int64_t> columns;
  for (const auto& group : padded_fields(fields)) {
    std::int64_t needed = 1;
    for (const auto length : group.lengths) needed = std::max(needed, length);
    const auto rounded = (needed + multiple - 1) / multiple * multiple;
    if (rounded >= fields.at(group.names.front()).size(1)) continue;
    for (const auto& name : group.names) columns[name] = rounded;
  }
  return columns;
}

std::int64_t step_of_few_lengths(std::int64_t longest, std::int64_t least) {
  constexpr std::int64_t kLengths = 8;
  const std::int64_t unit = kLengths * least;
  return std::max<std::int64_t>((longest + unit - 1) / unit, 1) * least;
}

void trim_padding(Fields& fields, std::int64_t multiple) {
  for (const auto& [name, columns] : needed_columns(fields, multiple)) {
    auto& field = fields.at(name);
    field = field.narrow(1, 0, columns);
  }
}

}  // namespace orthant
