#include "orthant/data/label_typos.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "orthant/base/nearest.h"
#include "orthant/data/table_numbers.h"
#include "orthant/text/shown.h"

namespace orthant {
namespace {

constexpr std::int64_t kRare = 2;
constexpr std::int64_t kFrequent = 10;
constexpr std::size_t kShown = 5;

std::string_view without_blanks_around(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool is_misspelt(const ColumnValue& label, const ColumnValue& other) {
  const auto text = without_blanks_around(label.text);
  const auto meant = without_blanks_around(other.text);
  const auto number = parse_table_number(text);
  if (number && parse_table_number(meant)) return number == parse_table_number(meant);
  const auto edits = edit_distance(text, meant);
  if (edits == 0) return true;
  if (label.count > kRare || other.count < kFrequent) return false;
  // One letter more or less makes another word of a short one.
  const auto letters = std::min(text.size(), meant.size());
  return letters >= 3 && edits <= (letters < 8 ? 1 : 2);
}

}  // namespace

std::vector<LabelTypo> label_typos(std::span<const ColumnValue> labels) {
  std::vector<LabelTypo> typos;
  for (std::size_t i = 1; i < labels.size(); ++i) {
    for (const auto& other : labels.first(i)) {
      if (!is_misspelt(labels[i], other)) continue;
      typos.push_back({.label = labels[i], .meant = other.text});
      break;
    }
  }
  return typos;
}

std::string describe_typos(std::span<const LabelTypo> typos) {
  std::vector<std::string> texts;
  for (const auto& [label, meant] : typos.first(std::min(typos.size(), kShown))) {
    const auto line = label.line == 0 ? std::string() : fmt::format(", line {}", label.line);
    texts.push_back(fmt::format("{} ({} row{}{}) may be {}", shown(label.text), label.count,
                                label.count == 1 ? "" : "s", line, shown(meant)));
  }
  if (typos.size() > kShown) texts.push_back(fmt::format("and {} more", typos.size() - kShown));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace orthant
