// Runs of names that are equal but for one number that counts up, so that tables show eight layers as "layers.0-7".
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace orthant {

struct NameRun {
  std::size_t first = 0;  // its place in the list
  std::size_t count = 1;
  std::string name;  // "layers.0-7"; the name itself when it is alone
  friend bool operator==(const NameRun&, const NameRun&) = default;
};

// The list in order, neighbours joined whose number, a part of its own between dots, counts up and for which
// alike(first, next) says that what is shown of them is equal. The longest runs from the front.
std::vector<NameRun> name_runs(std::span<const std::string> names,
                               const std::function<bool(std::size_t first, std::size_t next)>& alike);

}  // namespace orthant
