// The tokens of a model and their ids, both ways. Ids may have holes. Added tokens that the model itself does not know
// are not in here, see added_tokens.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// Immutable once built.
class Vocabulary {
 public:
  struct Entry {
    std::string token;
    std::int64_t id = 0;
  };

  static constexpr std::int64_t kLargestId = (std::int64_t{1} << 22) - 1;

  // DataError that begins with `source` for ids that are negative, above kLargestId or given twice, and for tokens that
  // are given twice.
  Vocabulary(const std::vector<Entry>& entries, const std::string& source);

  std::optional<std::int32_t> find(std::string_view token) const;
  bool has(std::int64_t id) const;
  // Empty when no token has the id. Lives as long as the vocabulary.
  std::string_view token(std::int64_t id) const;
  std::int64_t size() const { return static_cast<std::int64_t>(begins_.size()); }  // largest id + 1
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  std::size_t slot_of(std::string_view token) const;

  std::string letters_;                 // all tokens, one after the other
  std::vector<std::uint32_t> begins_;   // by id, into letters_
  std::vector<std::uint32_t> lengths_;  // by id; kAbsent for holes
  std::vector<std::int32_t> slots_;     // open addressing over ids; -1 is free
  std::int64_t num_tokens_ = 0;
};

}  // namespace orthant
