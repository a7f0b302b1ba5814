// A configuration key whose value is one of a few names.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/base/nearest.h"

namespace orthant {

// The choice that name_of() calls as the document does; the document's kind of error, with the nearest name, otherwise.
template <typename Choice, typename NameOf>
Choice read_choice(JsonReader& reader, std::string_view key, std::span<const Choice> choices, const NameOf& name_of,
                   Choice default_choice) {
  const std::string wanted = reader.get<std::string>(key, std::string(name_of(default_choice)));
  std::vector<std::string> names;
  for (const Choice choice : choices) {
    if (name_of(choice) == wanted) return choice;
    names.emplace_back(name_of(choice));
  }
  reader.fail(key, "unknown value \"" + wanted + "\"", did_you_mean(wanted, names));
}

}  // namespace orthant
