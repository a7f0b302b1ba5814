#include "orthant/data/table_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/data/table_numbers.h"
#include "orthant/text/utf8.h"

namespace orthant {
namespace {

// The labels as numbers, where every one is one.
std::optional<std::vector<double>> as_numbers(const std::vector<std::string>& labels) {
  std::vector<double> numbers;
  for (const auto& label : labels) {
    const bool digit = label.find_first_of("0123456789") != std::string::npos;  // not true or false
    const auto number = digit ? parse_table_number(label) : std::nullopt;
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

LabelMap::LabelMap(std::vector<std::string> given) : given_(true), labels_(std::move(given)) {
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (numbers_.emplace(labels_[i], static_cast<std::int32_t>(i)).second) continue;
    throw ConfigError(fmt::format("label \"{}\" is listed twice", labels_[i]), {.remedy = "list each label once"});
  }
}

std::optional<std::int32_t> LabelMap::number(std::string_view text) {
  if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
  if (given_ || find_invalid_utf8(text)) return std::nullopt;
  if (labels_.size() == kMostClasses) {
    throw DataError(fmt::format("the label column has more than {} different values, such as \"{}\", \"{}\" and \"{}\"",
                                kMostClasses, labels_[0], labels_[1], text),
                    {.remedy = "name a column of classes as label, or list the classes in data.labels"});
  }
  const auto next = static_cast<std::int32_t>(labels_.size());
  labels_.emplace_back(text);
  numbers_.emplace(labels_.back(), next);
  return next;
}

std::vector<std::int32_t> LabelMap::sort() {
  std::vector<std::size_t> order(labels_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!given_) {
    const auto numbers = as_numbers(labels_);
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
      if (numbers && (*numbers)[a] != (*numbers)[b]) return (*numbers)[a] < (*numbers)[b];
      return labels_[a] < labels_[b];
    });
  }
  std::vector<std::string> sorted;
  std::vector<std::int32_t> classes(labels_.size());
  for (std::size_t place = 0; place < order.size(); ++place) {
    classes[order[place]] = static_cast<std::int32_t>(place);
    sorted.push_back(std::move(labels_[order[place]]));
    numbers_[sorted.back()] = static_cast<std::int32_t>(place);
  }
  labels_ = std::move(sorted);
  return classes;
}

std::vector<double> balanced_weights(std::span<const std::int64_t> counts, std::span<const std::string> labels) {
  const auto rows = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  std::vector<double> weights;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) {
      throw DataError(
          fmt::format("balanced class weights: no row of the training part has the label \"{}\"", labels[i]),
          {.remedy = "leave it out of data.labels, or give class_weights as a list"});
    }
    weights.push_back(rows / (static_cast<double>(counts.size()) * static_cast<double>(counts[i])));
  }
  return weights;
}

}  // namespace orthant
