#include "orthant/data/classifier_table.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/data/classifier_rows.h"

namespace orthant {
namespace {

// Adds <name>_ids and <name>_mask of the rows `places`.
void add_text(Fields& fields, const std::string& name, const TextRows& text, std::span<const std::int64_t> places) {
  const auto count = static_cast<std::int64_t>(places.size());
  const at::Tensor ids = at::empty({count, text.length}, at::kLong);
  const at::Tensor mask = at::empty({count, text.length}, at::kBool);
  auto* id = ids.mutable_data_ptr<std::int64_t>();
  auto* real = mask.mutable_data_ptr<bool>();
  for (const auto place : places) {
    const auto tokens = text.ids[place];
    const auto padding = text.length - static_cast<std::int64_t>(tokens.size());
    id = std::fill_n(std::ranges::copy(tokens, id).out, padding, text.pad);
    real = std::fill_n(std::fill_n(real, tokens.size(), true), padding, false);
  }
  fields[name + "_ids"] = ids;
  fields[name + "_mask"] = mask;
}

}  // namespace

ClassifierTable::ClassifierTable(std::shared_ptr<const Rows> rows, std::vector<std::int64_t> part,
                                 std::vector<double> class_weights)
    : Dataset(std::move(class_weights)), rows_(std::move(rows)), own_part_(std::move(part)), part_(own_part_) {}

ClassifierTable::ClassifierTable(std::shared_ptr<const Rows> rows, std::span<const std::int64_t> part,
                                 std::vector<double> class_weights)
    : Dataset(std::move(class_weights)), rows_(std::move(rows)), part_(part) {}

std::vector<std::int64_t> ClassifierTable::places(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  std::vector<std::int64_t> places(indices.size());
  std::ranges::transform(indices, places.begin(), [&](auto index) { return part_[static_cast<std::size_t>(index)]; });
  return places;
}

Fields ClassifierTable::rows(std::span<const std::int64_t> indices) const {
  const auto taken = places(indices);
  const auto count = static_cast<std::int64_t>(taken.size());
  Fields fields;
  add_text(fields, "primary", rows_->primary, taken);
  add_text(fields, "secondary", rows_->secondary, taken);
  if (const auto columns = rows_->columns; columns > 0) {
    const at::Tensor tabular = at::empty({count, columns}, at::kFloat);
    auto* out = tabular.mutable_data_ptr<float>();
    for (const auto place : taken) out = std::copy_n(rows_->numbers.all().data() + place * columns, columns, out);
    fields["tabular"] = tabular;
  }
  const at::Tensor labels = at::empty({count}, at::kLong);
  std::ranges::transform(taken, labels.mutable_data_ptr<std::int64_t>(),
                         [&](auto place) { return rows_->labels.all()[static_cast<std::size_t>(place)]; });
  fields[kLabelsField] = labels;
  return fields;
}

Totals ClassifierTable::totals(std::span<const std::int64_t> indices) const {
  Totals totals;
  const auto& weights = class_weights();
  for (const auto place : places(indices)) {
    totals.tokens += rows_->primary.ids.length(place) + rows_->secondary.ids.length(place);
    const auto label = rows_->labels.all()[static_cast<std::size_t>(place)];
    if (label >= 0) totals.weight_sum += weights.empty() ? 1.0 : weights[static_cast<std::size_t>(label)];
  }
  return totals;
}

std::vector<std::int64_t> ClassifierTable::label_counts() const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(rows_->classes));
  for (const auto place : part_) {
    const auto label = rows_->labels.all()[static_cast<std::size_t>(place)];
    if (label >= 0) ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

std::int64_t ClassifierTable::file_row(std::int64_t index) const {
  return rows_->file_rows.all()[static_cast<std::size_t>(places({&index, 1}).front())];
}

std::int64_t ClassifierTable::label(std::int64_t index) const {
  return rows_->labels.all()[static_cast<std::size_t>(places({&index, 1}).front())];
}

}  // namespace orthant
