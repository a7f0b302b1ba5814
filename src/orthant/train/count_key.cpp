#include "orthant/train/count_key.h"

#include <fmt/format.h>

namespace orthant {

std::int64_t read_count(JsonReader& section, std::string_view key, std::int64_t standard, std::int64_t least) {
  const auto value = section.get<std::int64_t>(key, standard);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (value < least)
    section.fail(key, fmt::format("is {}; it must be at least {}", value, least), fmt::format("use {} or more", least));
  if (value > kMost)
    section.fail(key, fmt::format("is {}; it must be at most {}", value, kMost), fmt::format("use at most {}", kMost));
  return value;
}

}  // namespace orthant
