#include "orthant/text/merge_list.h"

#include <fmt/format.h>

#include <span>

#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

std::int32_t id_of(const Vocabulary& tokens, std::string_view token, std::size_t merge, const std::string& source) {
  if (const auto id = tokens.find(token)) return *id;
  throw DataError(fmt::format("{}: merge {} needs the token \"{}\", which is not in the vocabulary", source, merge,
                              token.substr(0, 80)),
                  {.remedy = "take vocabulary and merges from the same model"});
}

}  // namespace

BpeMerges merges_of(const MergeList& merges, const Vocabulary& tokens, const std::string& source) {
  BpeMerges table(merges.size());
  std::string joined;
  std::uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    joined.assign(left).append(right);
    const auto left_id = id_of(tokens, left, rank, source);
    const auto right_id = id_of(tokens, right, rank, source);
    table.set(left_id, right_id, {rank, id_of(tokens, joined, rank, source)});
    ++rank;
  }
  return table;
}

std::string describe(const MergeList& merges) {
  Xxh64 hash;
  const std::byte end{0};
  for (const auto& [left, right] : merges) {
    for (const auto& part : {std::string_view(left), std::string_view(right)}) {
      hash.update(std::as_bytes(std::span(part)));
      hash.update(std::span(&end, 1));
    }
  }
  return fmt::format("merges {} {:016x}", merges.size(), hash.digest());
}

}  // namespace orthant
