// The table by which SentencePiece normalises text: texts of a few characters and what each becomes. Files hold it as a
// double-array trie over bytes (four bytes of its length, its units, then the results, each ended by a zero byte).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// Immutable, safe from several threads.
class Charsmap {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;  // of a table; those in use have half a megabyte
  static constexpr std::size_t kMaxEntryBytes = 256;  // longer entries are not found; a few characters are usual

  // DataError that begins with `source` for bytes that are not such a table, and for one whose results are not UTF-8.
  // Units are checked when they are met: a walk never leaves the table, and ends where the table leads in a circle.
  // Entries and results that begin or end within a character count as none.
  Charsmap(std::string_view bytes, const std::string& source);

  // An entry that begins a text; length 0: there is none.
  struct Match {
    std::size_t length = 0;
    std::string_view result;
  };
  Match longest(std::string_view text) const { return walk(text, false); }
  // Text behind a zero byte is not looked at.
  Match shortest(std::string_view text) const { return walk(text, true); }

  // Whether some entry begins with the byte.
  bool may_begin(char byte) const { return begins_[static_cast<unsigned char>(byte)]; }

  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Match walk(std::string_view text, bool first_only) const;

  std::vector<std::uint32_t> units_;
  std::string results_;  // ends with a zero byte
  std::array<bool, 256> begins_ = {};
  std::uint64_t fingerprint_ = 0;
};

}  // namespace orthant
