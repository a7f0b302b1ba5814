// The labels of a classification table: from what the cells say to class numbers, and how much each class counts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orthant {

// Collects label texts. With given labels only these are known; otherwise every new text becomes a label, numbered as
// found until sort() puts them in order. One thread at a time.
class LabelMap {
 public:
  static constexpr std::size_t kMostClasses = 1000;

  LabelMap() = default;
  // ConfigError for labels that repeat.
  explicit LabelMap(std::vector<std::string> given);

  // The number of a text; nothing for one that is not among the given labels or not UTF-8. DataError past kMostClasses.
  std::optional<std::int32_t> number(std::string_view text);

  // Puts found labels in class order: as numbers where all are numbers, by bytes otherwise. Returns the class of each
  // number given out so far. Given labels stay as they are.
  std::vector<std::int32_t> sort();

  bool is_given() const { return given_; }
  const std::vector<std::string>& labels() const { return labels_; }

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  bool given_ = false;
  std::vector<std::string> labels_;
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> numbers_;
};

// Rows / (classes x rows of the class): every class counts alike in all. DataError names a class without rows.
std::vector<double> balanced_weights(std::span<const std::int64_t> counts, std::span<const std::string> labels);

}  // namespace orthant
