#include "orthant/base/name_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace orthant {
namespace {

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// A name around one of its numbers: "towers.", 3, ".norm".
struct Numbered {
  std::string_view before;
  std::int64_t number = 0;
  std::string_view after;
};

// Every way to see `name` as a numbered one; a number stands between dots or at an end.
std::vector<Numbered> numberings(std::string_view name) {
  std::vector<Numbered> found;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    std::int64_t number = 0;
    const auto [stop, status] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (!part.empty() && is_digit(part.front()) && status == std::errc() && stop == part.data() + part.size()) {
      found.push_back({name.substr(0, begin), number, name.substr(end)});
    }
    begin = end + 1;
  }
  return found;
}

// How `next` continues `first`, the name `distance` places before it.
std::optional<Numbered> continuation(std::string_view first, std::string_view next, std::int64_t distance) {
  for (const Numbered& start : numberings(first)) {
    for (const Numbered& here : numberings(next)) {
      if (here.before == start.before && here.after == start.after && here.number == start.number + distance)
        return start;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<NameRun> name_runs(std::span<const std::string> names,
                               const std::function<bool(std::size_t first, std::size_t next)>& alike) {
  std::vector<NameRun> runs;
  for (std::size_t first = 0; first < names.size();) {
    NameRun run{.first = first, .count = 1, .name = names[first]};
    std::optional<Numbered> counted;
    for (std::size_t next = first + 1; next < names.size(); ++next, ++run.count) {
      const auto here = continuation(names[first], names[next], static_cast<std::int64_t>(run.count));
      if (!here || (counted && counted->before != here->before) || !alike(first, next)) break;
      counted = here;
    }
    if (counted) {
      const std::int64_t last = counted->number + static_cast<std::int64_t>(run.count) - 1;
      run.name = fmt::format("{}{}-{}{}", counted->before, counted->number, last, counted->after);
    }
    first += run.count;
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace orthant
