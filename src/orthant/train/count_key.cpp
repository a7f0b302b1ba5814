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

bool read_switch(JsonReader& section, std::string_view key, const char* when_false, const char* when_true,
                 bool standard) {
  const auto word = section.get<std::string>(key, standard ? when_true : when_false);
  if (word != when_true && word != when_false) {
    section.fail(key, fmt::format("found \"{}\"", word), fmt::format("use {} or {}", when_true, when_false));
  }
  return word == when_true;
}

}  // namespace orthant
