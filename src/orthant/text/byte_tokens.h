// The tokens <0x00> to <0xFF> of a vocabulary, by which models over characters write what they have no token for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "orthant/text/token_decoder.h"
#include "orthant/text/vocabulary.h"

namespace orthant {

// Immutable once built.
class ByteTokens {
 public:
  ByteTokens() { ids_.fill(-1); }
  explicit ByteTokens(const Vocabulary& vocabulary) {
    for (std::size_t byte = 0; byte < ids_.size(); ++byte) {
      ids_[byte] = vocabulary.find(token_of_byte(static_cast<unsigned char>(byte))).value_or(-1);
    }
  }

  // Adds the ids of all bytes of `text`; false, and nothing is added, when one has none.
  bool add(std::string_view text, std::vector<std::int32_t>& ids) const {
    const auto from = ids.size();
    for (const char letter : text) {
      const auto id = ids_[static_cast<unsigned char>(letter)];
      if (id < 0) {
        ids.resize(from);
        return false;
      }
      ids.push_back(id);
    }
    return true;
  }

 private:
  std::array<std::int32_t, 256> ids_ = {};
};

}  // namespace orthant
