#include "orthant/data/field_checks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>
#include <vector>

#include "orthant/base/error.h"

namespace orthant {
namespace {

// "row 3, position 7", "row 3" for a field of one value per row.
std::string place(const at::Tensor& value, std::int64_t element) {
  const std::int64_t per_row = value.numel() / value.size(0);
  if (per_row == 1) return fmt::format("row {}", element);
  return fmt::format("row {}, position {}", element / per_row, element % per_row);
}

void check_rows(const Fields& fields, const std::string& source) {
  if (fields.empty()) throw DataError(fmt::format("{}: there are no fields", source));
  std::int64_t rows = -1;
  std::string first;
  for (const auto& [name, value] : fields) {
    if (value.dim() == 0) throw DataError(fmt::format("{}: field {} has no rows: it is a single number", source, name));
    if (rows < 0) {
      rows = value.size(0);
      first = name;
    }
    if (value.size(0) != rows) {
      throw DataError(
          fmt::format("{}: field {} has {} rows, but field {} has {}", source, first, rows, name, value.size(0)));
    }
  }
  if (rows == 0)
    throw DataError(fmt::format("{}: the data set is empty", source), {.remedy = "give it at least one row"});
}

const at::Tensor& integer_field(const Fields& fields, const std::string& name, const std::string& source) {
  const auto found = fields.find(name);
  if (found == fields.end()) {
    std::vector<std::string> names;
    for (const auto& field : fields) names.push_back(field.first);
    throw DataError(fmt::format("{}: there is no field {} (fields: {})", source, name, fmt::join(names, ", ")));
  }
  if (found->second.scalar_type() != at::kLong) {
    throw DataError(fmt::format("{}: field {} is of type {}, not int64", source, name, found->second.dtype().name()));
  }
  return found->second;
}

void check_ids(const at::Tensor& field, const std::string& name, std::int64_t vocab_size, const std::string& source) {
  const at::Tensor ids = field.contiguous();
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] >= 0 && id[i] < vocab_size) continue;
    throw DataError(
        fmt::format("{}: field {}, {}: token id {} is not in [0, {})", source, name, place(ids, i), id[i], vocab_size),
        {.remedy = fmt::format("set vocab_size to the size of the tokenizer that made the ids, or make "
                               "them with a tokenizer of at most {} tokens",
                               vocab_size)});
  }
}

void check_labels(const at::Tensor& field, std::int64_t num_labels, const std::string& source) {
  const at::Tensor labels = field.contiguous();
  const std::int64_t* label = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] == kIgnoredLabel || (label[i] >= 0 && label[i] < num_labels)) continue;
    throw DataError(fmt::format("{}: field {}, {}: label {} is not in [0, {}), nor {} (ignored)", source, kLabelsField,
                                place(labels, i), label[i], num_labels, kIgnoredLabel),
                    {.remedy = "number the classes from 0, or set the number of labels to the largest label + 1"});
  }
}

void check_finite(const at::Tensor& field, const std::string& name, const std::string& source) {
  const at::Tensor numbers = field.to(at::kDouble).contiguous();
  const double* number = numbers.const_data_ptr<double>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    if (std::isfinite(number[i])) continue;
    throw DataError(
        fmt::format("{}: field {}, {}: {} is not a finite number", source, name, place(numbers, i), number[i]),
        {.remedy = "fill in or drop rows with missing numbers"});
  }
}

}  // namespace

void check_fields(const Fields& fields, const FieldLimits& limits, const std::string& source) {
  check_rows(fields, source);
  for (const auto& [name, vocab_size] : limits.vocab_sizes) {
    check_ids(integer_field(fields, name, source), name, vocab_size, source);
  }
  if (limits.num_labels > 0) check_labels(integer_field(fields, kLabelsField, source), limits.num_labels, source);
  for (const auto& [name, value] : fields) {
    if (value.is_floating_point()) check_finite(value, name, source);
  }
}

void check_class_weights(std::span<const double> weights, std::int64_t num_labels) {
  if (weights.empty()) return;
  if (std::cmp_not_equal(weights.size(), num_labels)) {
    throw ConfigError(fmt::format("class_weights has {} entries, but there are {} classes", weights.size(), num_labels),
                      {.remedy = fmt::format("give class_weights {} entries, or leave it out", num_labels)});
  }
  for (const double weight : weights) {
    if (std::isfinite(weight) && weight > 0) continue;
    throw ConfigError(
        fmt::format("class_weights is [{}], but every weight must be a positive number", fmt::join(weights, ", ")),
        {.remedy = "set weights above 0; 1 is neutral"});
  }
}

}  // namespace orthant
