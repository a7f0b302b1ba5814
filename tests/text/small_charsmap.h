// A table of SentencePiece's normalizer made in memory, in the form that files hold it: a double-array trie and
// results.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace orthant {

class SmallCharsmap {
 public:
  // Keys and results; keys are not empty.
  explicit SmallCharsmap(const std::map<std::string, std::string>& entries) {
    units_.assign(1024, 0);
    used_.assign(1024, false);
    used_[0] = true;
    std::map<std::string, std::uint32_t> values;
    for (const auto& [key, result] : entries) {
      values[key] = static_cast<std::uint32_t>(results_.size());
      results_ += result + '\0';
    }
    place(0, "", values);
  }

  std::string bytes() const {
    std::string out;
    append(out, static_cast<std::uint32_t>(units_.size() * 4));
    for (const auto unit : units_) append(out, unit);
    return out + results_;
  }

 private:
  static void append(std::string& out, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i) & 255);
  }

  // Puts the children of the node of `prefix`, which lies at `index`, into free units.
  void place(std::uint32_t index, const std::string& prefix, const std::map<std::string, std::uint32_t>& values) {
    std::map<unsigned char, std::string> children;
    for (const auto& [key, value] : values) {
      if (key.starts_with(prefix) && key.size() > prefix.size()) {
        children[static_cast<unsigned char>(key[prefix.size()])] = key.substr(0, prefix.size() + 1);
      }
    }
    const auto entry = values.find(prefix);
    std::uint32_t base = 1;
    const auto fits = [&] {
      if (bases_.contains(base)) return false;
      if (entry != values.end() && used_[base]) return false;
      for (const auto& [label, key] : children) {
        if (used_[base ^ label]) return false;
      }
      return true;
    };
    while (!fits()) ++base;
    bases_.insert(base);
    units_[index] |= (index ^ base) << 10;
    if (entry != values.end()) {
      units_[index] |= 1U << 8;
      units_[base] = entry->second | 1U << 31;
      used_[base] = true;
    }
    for (const auto& [label, key] : children) used_[base ^ label] = true;
    for (const auto& [label, key] : children) {
      units_[base ^ label] = label;
      place(base ^ label, key, values);
    }
  }

  std::vector<std::uint32_t> units_;
  std::vector<bool> used_;
  std::set<std::uint32_t> bases_;  // every node has its own
  std::string results_;
};

}  // namespace orthant
