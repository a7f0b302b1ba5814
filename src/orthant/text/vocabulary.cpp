#include "orthant/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "orthant/base/error.h"
#include "orthant/text/byte_hash.h"
#include "orthant/text/shown.h"

namespace orthant {
namespace {

constexpr std::uint32_t kAbsent = std::numeric_limits<std::uint32_t>::max();

std::int64_t largest_id(const std::vector<Vocabulary::Entry>& entries, const std::string& source) {
  std::int64_t largest = -1;
  std::size_t letters = 0;
  for (const auto& [token, id] : entries) {
    if (id < 0 || id > Vocabulary::kLargestId) {
      throw DataError(fmt::format("{}: token {} has the id {}", source, shown(token), id),
                      {.remedy = fmt::format("ids are between 0 and {}", Vocabulary::kLargestId)});
    }
    largest = std::max(largest, id);
    letters += token.size();
  }
  if (letters >= kAbsent) throw DataError(fmt::format("{}: the tokens are longer than 4 GiB together", source));
  return largest;
}

}  // namespace

Vocabulary::Vocabulary(const std::vector<Entry>& entries, const std::string& source) {
  const auto size = static_cast<std::size_t>(largest_id(entries, source) + 1);
  begins_.assign(size, 0);
  lengths_.assign(size, kAbsent);
  slots_.assign(std::bit_ceil(entries.size() * 2 + 2), -1);
  for (const auto& [token, id] : entries) {
    const auto at = static_cast<std::size_t>(id);
    if (lengths_[at] != kAbsent) {
      throw DataError(
          fmt::format("{}: tokens {} and {} have the same id {}", source, shown(this->token(id)), shown(token), id),
          {.remedy = "give every token an id of its own"});
    }
    auto& slot = slots_[slot_of(token)];
    if (slot >= 0) {
      throw DataError(fmt::format("{}: token {} is given twice, with ids {} and {}", source, shown(token), slot, id),
                      {.remedy = "keep one of them"});
    }
    begins_[at] = static_cast<std::uint32_t>(letters_.size());
    lengths_[at] = static_cast<std::uint32_t>(token.size());
    letters_ += token;
    slot = static_cast<std::int32_t>(id);
    ++num_tokens_;
  }
}

std::size_t Vocabulary::slot_of(std::string_view wanted) const {
  const auto mask = slots_.size() - 1;
  auto slot = hash_bytes(wanted) & mask;
  while (slots_[slot] >= 0 && token(slots_[slot]) != wanted) slot = (slot + 1) & mask;
  return slot;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view wanted) const {
  const auto id = slots_[slot_of(wanted)];
  return id >= 0 ? std::optional(id) : std::nullopt;
}

bool Vocabulary::has(std::int64_t id) const {
  return id >= 0 && id < size() && lengths_[static_cast<std::size_t>(id)] != kAbsent;
}

std::string_view Vocabulary::token(std::int64_t id) const {
  if (!has(id)) return {};
  const auto at = static_cast<std::size_t>(id);
  return std::string_view(letters_).substr(begins_[at], lengths_[at]);
}

}  // namespace orthant
