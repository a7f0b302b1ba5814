#include "orthant/launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/launch/token.h"

namespace orthant::launch {

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || text.substr(0, equals) == kTokenVariable) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

const std::string* find_variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<int> int_variable(const Environment& environment, const std::string& name) {
  const auto* text = find_variable(environment, name);
  if (text == nullptr) return std::nullopt;
  int value = -1;
  const auto [rest, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || rest != text->data() + text->size() || value < 0) {
    throw ConfigError(fmt::format("{}='{}' is not a whole number of at least 0", name, *text),
                      {.remedy = "unset it, or start the program through its launcher again"});
  }
  return value;
}

}  // namespace orthant::launch
