// What a JsonDocument and its readers share. Internal to the JSON files of this folder.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_document.h"

namespace orthant {

struct JsonState {
  JsonTree tree;
  bool reading = false;  // a reader exists: the value may no longer change
  std::vector<JsonEntry> entries = {};
  std::map<std::string, std::size_t, std::less<>> entry_of_pointer = {};

  void note(const std::string& pointer, JsonEntry entry) {
    const auto [place, added] = entry_of_pointer.emplace(pointer, entries.size());
    if (added) {
      entries.push_back(std::move(entry));
    } else {
      entries[place->second] = std::move(entry);
    }
  }
};

}  // namespace orthant
