#include "orthant/text/sentencepiece_bpe.h"

#include <algorithm>
#include <functional>
#include <map>

#include "orthant/text/space_mark.h"
#include "orthant/text/unigram.h"

namespace orthant {
namespace {

bool may_merge_into(const SentencePieceFile::Piece& piece) {
  return piece.type == SentencePieceFile::Type::normal || piece.type == SentencePieceFile::Type::user_defined;
}

bool is_one_character(std::string_view text) {
  return static_cast<std::size_t>(unicode::decode_valid(text.data()).length) == text.size();
}

// Pieces of the same score have the same rank.
std::map<float, std::uint32_t, std::greater<>> ranks_of(const SentencePieceFile& file) {
  std::map<float, std::uint32_t, std::greater<>> ranks;
  for (const auto& piece : file.pieces) {
    if (may_merge_into(piece)) ranks.emplace(piece.score, 0);
  }
  std::uint32_t rank = 0;
  for (auto& [score, value] : ranks) value = rank++;
  return ranks;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(const SentencePieceFile& file, const Vocabulary& vocabulary, const PieceTrie& frozen)
    : vocabulary_(vocabulary), frozen_(frozen), merges_(0) {
  for (const auto& piece : file.pieces) reserved_.push_back(!may_merge_into(piece));
  const auto no_mark_inside = [](const auto& piece) { return !may_merge_into(piece) || !has_mark_inside(piece.text); };
  words_at_marks_ = piece_of(kSpaceMark) >= 0 && std::ranges::all_of(file.pieces, no_mark_inside);
  fill_merges(file);
}

std::int32_t SentencePieceBpe::piece_of(std::string_view text) const {
  const auto id = vocabulary_.find(text);
  return id && !reserved_[static_cast<std::size_t>(*id)] ? *id : -1;
}

std::int32_t SentencePieceBpe::symbol_of(std::string_view character) const {
  if (const auto id = piece_of(character); id >= 0) return id;
  if (part_symbols_.empty()) return -1;
  const auto place = part_symbols_.find(std::string(character));
  return place == part_symbols_.end() ? -1 : place->second;
}

void SentencePieceBpe::fill_merges(const SentencePieceFile& file) {
  struct Found {
    std::int32_t left, right;
    BpeMerges::Merge merge;
  };
  // The symbol that a part of a piece is, when it can be one.
  const auto symbol_of_part = [&](std::string_view part) -> std::int32_t {
    if (const auto id = piece_of(part); id >= 0) return id;
    if (!is_one_character(part)) return -1;
    const auto next = static_cast<std::int32_t>(vocabulary_.size() + std::ssize(parts_));
    const auto [place, is_new] = part_symbols_.try_emplace(std::string(part), next);
    if (is_new) parts_.emplace_back(part);
    return place->second;
  };
  const auto ranks = ranks_of(file);
  std::vector<Found> found;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const auto& piece = file.pieces[id];
    if (!may_merge_into(piece)) continue;
    check_piece_length(piece.text, kMaxPieceBytes, file.source);
    const std::string_view text = piece.text;
    const BpeMerges::Merge merge{ranks.at(piece.score), static_cast<std::int32_t>(id)};
    for (std::size_t at = 0; at < text.size();) {
      at += static_cast<std::size_t>(unicode::decode_valid(text.data() + at).length);
      if (at == text.size()) break;
      const auto left = symbol_of_part(text.substr(0, at));
      if (left < 0) continue;
      if (const auto right = symbol_of_part(text.substr(at)); right >= 0) found.push_back({left, right, merge});
    }
  }
  merges_ = BpeMerges(found.size());
  for (const auto& [left, right, merge] : found) merges_.set(left, right, merge);
}

}  // namespace orthant
