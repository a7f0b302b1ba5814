#include "orthant/text/sentencepiece.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "orthant/files/xxhash.h"
#include "orthant/text/byte_tokens.h"
#include "orthant/text/sentencepiece_bpe.h"
#include "orthant/text/sentencepiece_normalizer.h"
#include "orthant/text/space_mark.h"
#include "orthant/text/unigram.h"
#include "orthant/text/unigram_search.h"
#include "orthant/text/word_cache_pool.h"

namespace orthant {
namespace {

using Type = SentencePieceFile::Type;

constexpr std::size_t kMaxUserBytes = kMaxPieceBytes;

std::vector<Vocabulary::Entry> entries_of(const SentencePieceFile& file) {
  std::vector<Vocabulary::Entry> entries;
  entries.reserve(file.pieces.size());
  for (const auto& piece : file.pieces) {
    entries.push_back({piece.text, static_cast<std::int64_t>(entries.size())});
  }
  return entries;
}

PieceTrie trie_of(const SentencePieceFile& file, const Vocabulary& vocabulary, bool user_defined_only) {
  std::vector<PieceTrie::Piece> pieces;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const auto type = file.pieces[id].type;
    if (type != Type::user_defined && (user_defined_only || type != Type::normal)) continue;
    const auto text = vocabulary.token(static_cast<std::int64_t>(id));
    check_piece_length(text, kMaxUserBytes, file.source);
    pieces.push_back({PieceTrie::Root::kBegin, text, static_cast<std::int32_t>(id)});
  }
  return {std::move(pieces), file.source};
}

// Pieces that users defined have scores that few other paths reach, as version 0.2.3 of `sentencepiece` has them.
UnigramSearch search_of(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  constexpr float kPenalty = 10;  // of an unknown character
  constexpr double kBonus = 0.1;  // of a byte of a user's piece
  float lowest = std::numeric_limits<float>::max();
  std::vector<double> scores;
  scores.reserve(file.pieces.size());
  for (const auto& piece : file.pieces) {
    if (piece.type == Type::normal) lowest = std::min(lowest, piece.score);
    scores.push_back(piece.type == Type::user_defined ? kBonus * (static_cast<double>(piece.text.size()) - 1)
                                                      : static_cast<double>(piece.score));
  }
  return {trie_of(file, vocabulary, false), std::move(scores), lowest - kPenalty};
}

SpecialTokens roles_of(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  const auto control = [&](const std::string& text) -> std::optional<std::int32_t> {
    const auto id = vocabulary.find(text);
    return id && file.pieces[static_cast<std::size_t>(*id)].type == Type::control ? id : std::nullopt;
  };
  return {.pad = control(file.pad),
          .unknown = file.unknown_id(),
          .begin = control(file.begin),
          .end = control(file.end),
          .mask = {}};
}

std::string describe_settings(const SentencePieceFile& file) {
  Xxh64 hash;
  for (const auto& piece : file.pieces) {
    hash.update(std::as_bytes(std::span(&piece.score, 1)));
    hash.update(std::as_bytes(std::span(&piece.type, 1)));
  }
  hash.update(std::as_bytes(std::span(file.charsmap)));
  return fmt::format("sentencepiece {} {:016x} {} {} {} {} {}\n{}", static_cast<int>(file.kind), hash.digest(),
                     file.byte_fallback, file.space_as_suffix, file.add_prefix, file.remove_extra_spaces,
                     file.escape_spaces, file.unknown_text);
}

class SentencePiece : public Tokenizer::Model {
 public:
  SentencePiece(const SentencePieceFile& file, bool add_begin)
      : Model(Vocabulary(entries_of(file), file.source)),
        user_defined_(trie_of(file, vocabulary(), true)),
        normalizer_(file, user_defined_),
        byte_fallback_(file.byte_fallback),
        unknown_(file.unknown_id()),
        unknown_text_(file.unknown_text),
        keeps_leading_space_(!file.add_prefix && !file.remove_extra_spaces),
        drops_leading_spaces_(file.remove_extra_spaces) {
    if (byte_fallback_) bytes_ = ByteTokens(vocabulary());
    for (const auto& piece : file.pieces) types_.push_back(piece.type);
    if (file.kind == SentencePieceFile::Kind::bpe) {
      bpe_.emplace(file, vocabulary(), user_defined_);
    } else {
      unigram_.emplace(search_of(file, vocabulary()));
    }
    start({.added = {}, .post = {}, .special = roles_of(file, vocabulary()), .add_begin = add_begin},
          describe_settings(file));
  }

  std::string kind() const override { return bpe_ ? "BPE" : "Unigram"; }

 protected:
  std::string_view normalize(std::string_view piece, std::string& buffer) const override {
    buffer = normalizer_.normalize(piece);
    return buffer;
  }

  void encode_words(std::string_view piece, Place, std::vector<std::int32_t>& ids) const override {
    if (!bpe_) return encode_word(piece, ids);
    if (!bpe_->has_words_at_marks()) return encode_word(piece, ids);
    const WordCachePool::Borrowed cache(caches_);
    const auto make = [this](std::string_view word, std::vector<std::int32_t>& made) { encode_word(word, made); };
    for_each_marked_word(piece, [&](std::string_view word) { cache.ids_of(word, ids, make); });
  }

  bool words_may_be_cut() const override { return false; }
  std::string decode_known(std::span<const std::int32_t> ids) const override;

 private:
  // Unknown characters become their bytes, or one unknown piece for a run of them.
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    bool after_unknown = false;
    const auto add = [&](std::string_view text, std::int32_t id) {
      const bool is_unknown = id < 0 || id == unknown_;
      if (!is_unknown) {
        ids.push_back(id);
      } else if (byte_fallback_) {
        bytes_.add(text, ids);
      } else if (!after_unknown) {
        ids.push_back(unknown_);
      }
      after_unknown = is_unknown;
    };
    if (bpe_) {
      bpe_->encode(word, add);
    } else {
      unigram_->best_path<float>(word, add);
    }
  }

  std::string text_of(std::int32_t id, bool at_begin, bool& took_space) const;

  PieceTrie user_defined_;
  SentencePieceNormalizer normalizer_;
  std::optional<SentencePieceBpe> bpe_;
  std::optional<UnigramSearch> unigram_;
  ByteTokens bytes_;
  bool byte_fallback_;
  std::int32_t unknown_;
  std::string unknown_text_;
  bool keeps_leading_space_;
  bool drops_leading_spaces_;
  std::vector<Type> types_;  // by id
  mutable WordCachePool caches_;
};

// What a piece that is no byte says. At the begin of the text a space that was put before it goes: `took_space`, unless
// all of them go.
std::string SentencePiece::text_of(std::int32_t id, bool at_begin, bool& took_space) const {
  took_space = false;
  const auto type = types_[static_cast<std::size_t>(id)];
  if (type == Type::control) return {};
  if (type == Type::unknown) return unknown_text_;
  auto piece = vocabulary().token(id);
  if (at_begin && !keeps_leading_space_ && piece.starts_with(kSpaceMark)) {
    piece.remove_prefix(kSpaceMark.size());
    took_space = !drops_leading_spaces_;
  }
  std::string text;
  for (auto at = piece.find(kSpaceMark); at != std::string_view::npos; at = piece.find(kSpaceMark)) {
    text.append(piece.substr(0, at)).append(" ");
    piece.remove_prefix(at + kSpaceMark.size());
  }
  return text.append(piece);
}

std::string SentencePiece::decode_known(std::span<const std::int32_t> ids) const {
  std::string text;
  std::string bytes;
  const auto flush = [&] {
    for (std::size_t at = 0; at < bytes.size();) {
      const auto length = static_cast<std::size_t>(unicode::decode(bytes, at).length);
      text += length == 0 ? std::string("\xef\xbf\xbd") : bytes.substr(at, length);
      at += std::max<std::size_t>(length, 1);
    }
    bytes.clear();
  };
  bool at_begin = true;
  bool took_space = false;
  for (const auto id : ids) {
    if (types_[static_cast<std::size_t>(id)] == Type::byte) {
      bytes += static_cast<char>(byte_of_token(vocabulary().token(id)));
      continue;
    }
    flush();
    if (took_space || !text.empty()) at_begin = false;
    text += text_of(id, at_begin, took_space);
  }
  flush();
  return text;
}

}  // namespace

std::shared_ptr<const Tokenizer::Model> make_sentencepiece(const SentencePieceFile& file, bool add_begin) {
  return std::make_shared<const SentencePiece>(file, add_begin);
}

}  // namespace orthant
