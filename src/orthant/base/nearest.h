// The valid name a mistyped one was probably meant to be: for configuration keys, commands, options and axes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orthant {

// The candidate that differs least from `wanted`, when it is near enough to be worth suggesting: at most one edit for
// every three letters, or a candidate that continues `wanted`. Case is ignored; '-' and '_' are equal; the first wins.
std::optional<std::string> nearest(std::string_view wanted, std::span<const std::string> candidates);

// The remedy of an error about an unknown name: `did you mean "float32"? (one of float64, float32, ...)`.
std::string did_you_mean(std::string_view wanted, std::span<const std::string> candidates);

// The insertions, deletions, replacements and swaps of neighbours that turn one name into the other.
std::size_t edit_distance(std::string_view left, std::string_view right);

}  // namespace orthant
