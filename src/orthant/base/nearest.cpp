#include "orthant/base/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace orthant {
namespace {

constexpr std::size_t kMaxEdits = 3;
constexpr std::size_t kShortestPrefix = 3;

char folded(char letter) {
  if (letter == '-') return '_';
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

std::string folded(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(), [](char letter) { return folded(letter); });
  return text;
}

std::size_t difference(std::size_t left, std::size_t right) {
  return left > right ? left - right : right - left;
}

}  // namespace

std::size_t edit_distance(std::string_view left, std::string_view right) {
  const std::string a = folded(left);
  const std::string b = folded(right);
  // Three rows of the usual table: the swap of neighbours looks two rows back.
  std::array<std::vector<std::size_t>, 3> rows;
  for (auto& row : rows) row.resize(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const auto& above = rows[(i - 1) % 3];
    auto& row = rows[i % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::optional<std::string> nearest(std::string_view wanted, std::span<const std::string> candidates) {
  const std::size_t limit = std::clamp<std::size_t>(wanted.size() / 3, 1, kMaxEdits);
  std::optional<std::string> best;
  std::size_t best_distance = limit + 1;
  for (const auto& candidate : candidates) {
    // A single letter is one edit from every other: suggest it only for a difference of case.
    const std::size_t allowed = std::min(wanted.size(), candidate.size()) < 2 ? 0 : limit;
    if (difference(wanted.size(), candidate.size()) > allowed) continue;
    const std::size_t distance = edit_distance(wanted, candidate);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (best || wanted.size() < kShortestPrefix) return best;
  for (const auto& candidate : candidates) {
    if (candidate.size() >= wanted.size() && folded(candidate).starts_with(folded(wanted))) return candidate;
  }
  return std::nullopt;
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string> candidates) {
  const auto found = nearest(wanted, candidates);
  const auto all = fmt::format("one of {}", fmt::join(candidates, ", "));
  return found ? fmt::format("did you mean \"{}\"? ({})", *found, all) : all;
}

}  // namespace orthant
