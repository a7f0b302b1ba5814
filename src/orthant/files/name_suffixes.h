// What names of files and folders end in while they are written, replaced, set aside or thrown away. Whoever looks for
// such names takes them from here.
#pragma once

#include <charconv>
#include <string_view>

namespace orthant {

// Half-written: followed by the number of the process.
inline constexpr std::string_view kPartialMark = ".partial-";
// Complete, and about to take the place of what has the name; after the two were exchanged, what had it.
inline constexpr std::string_view kReplacingSuffix = ".new";
// What had the name until something complete took its place.
inline constexpr std::string_view kReplacedSuffix = ".replaced";
// No longer wanted: half of it may be gone.
inline constexpr std::string_view kRemovedSuffix = ".removed";
// A checkpoint whose contents are proved wrong. It stays until somebody removes it by hand.
inline constexpr std::string_view kRefusedSuffix = ".refused";
// What a resumed run left behind when it took another way. It stays until that run has saved.
inline constexpr std::string_view kSupersededSuffix = ".superseded";

// Whether the name ends in the suffix, or in one with a number as free_name() appends it: "step-4.refused-2".
inline bool is_set_aside(std::string_view name, std::string_view suffix) {
  const auto found = name.rfind(suffix);
  if (found == std::string_view::npos || found == 0) return false;
  const auto rest = name.substr(found + suffix.size());
  if (rest.empty()) return true;
  int number = 0;
  const auto* const end = rest.data() + rest.size();
  if (rest.front() != '-') return false;
  const auto read = std::from_chars(rest.data() + 1, end, number);
  return read.ec == std::errc() && read.ptr == end && number > 1;
}

}  // namespace orthant
