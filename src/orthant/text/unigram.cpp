#include "orthant/text/unigram.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"
#include "orthant/text/byte_tokens.h"
#include "orthant/text/shown.h"
#include "orthant/text/unigram_search.h"
#include "orthant/text/word_cache_pool.h"

namespace orthant {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score of all

UnigramSearch search_of(const Vocabulary& tokens, const std::vector<double>& scores, const std::string& source) {
  std::vector<PieceTrie::Piece> pieces;
  for (std::int64_t id = 0; id < tokens.size(); ++id) {
    check_piece_length(tokens.token(id), kMaxPieceBytes, source);
    pieces.push_back({PieceTrie::Root::kBegin, tokens.token(id), static_cast<std::int32_t>(id)});
  }
  const auto lowest = scores.empty() ? 0 : *std::ranges::min_element(scores);
  return {PieceTrie(std::move(pieces), source), scores, lowest - kUnknownPenalty};
}

std::string describe_settings(const UnigramOptions& options) {
  return fmt::format("scores {:016x}\nbytes {}\nunknown {}\n{}\n{}\n{}",
                     xxh64(std::as_bytes(std::span(options.scores))), options.byte_fallback,
                     options.unknown.value_or(-1), options.normalizer.describe(), options.words.describe(),
                     options.decoder.describe());
}

class Unigram : public Tokenizer::Model {
 public:
  explicit Unigram(UnigramOptions options)
      : Model(Vocabulary(options.tokens, options.source)),
        search_(search_of(vocabulary(), options.scores, options.source)),
        bytes_(options.byte_fallback ? ByteTokens(vocabulary()) : ByteTokens()),
        byte_fallback_(options.byte_fallback),
        unknown_(options.unknown),
        normalizer_(options.normalizer),
        words_(options.words),
        decoder_(options.decoder) {
    start(options.parts, describe_settings(options));
  }

  std::string kind() const override { return "Unigram"; }

 protected:
  std::string_view normalize(std::string_view piece, std::string& buffer) const override {
    return normalizer_.apply_replacing(piece, buffer);
  }

  void encode_words(std::string_view piece, Place place, std::vector<std::int32_t>& ids) const override {
    const WordCachePool::Borrowed cache(caches_);
    const auto make = [this](std::string_view word, std::vector<std::int32_t>& made) { encode_word(word, made); };
    words_.split(piece, place, [&](std::string_view word) { cache.ids_of(word, ids, make); });
  }

  bool words_may_be_cut() const override { return false; }

  std::string decode_known(std::span<const std::int32_t> ids) const override { return decoder_.decode(tokens_of(ids)); }

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    std::string_view unknown;  // the run of unknown characters, and of the piece that stands for them, that goes on
    search_.best_path<double>(word, [&](std::string_view piece, std::int32_t id) {
      if (id < 0 && !unknown_) refuse_unknown(piece);
      if (id < 0 || id == unknown_) {
        unknown = unknown.empty() ? piece : std::string_view(unknown.data(), unknown.size() + piece.size());
        return;
      }
      add_unknown(unknown, ids);
      unknown = {};
      ids.push_back(id);
    });
    add_unknown(unknown, ids);
  }

  void add_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (text.empty()) return;
    if (const auto id = vocabulary().find(text)) return ids.push_back(*id);
    if (!(byte_fallback_ && bytes_.add(text, ids))) ids.push_back(*unknown_);
  }

  [[noreturn]] static void refuse_unknown(std::string_view character) {
    throw DataError(fmt::format("the vocabulary has no piece for {}, and no unk_id", shown(character)),
                    {.remedy = "use a vocabulary with all characters of the text, or set unk_id"});
  }

  UnigramSearch search_;
  ByteTokens bytes_;
  bool byte_fallback_;
  std::optional<std::int32_t> unknown_;
  TextNormalizer normalizer_;
  PreTokenizer words_;
  TokenDecoder decoder_;
  mutable WordCachePool caches_;
};

}  // namespace

void check_piece_length(std::string_view piece, std::size_t most, const std::string& source) {
  if (piece.size() <= most) return;
  throw DataError(fmt::format("{}: the piece {} has {} bytes", source, shown(piece), piece.size()),
                  {.remedy = fmt::format("use a vocabulary whose pieces have at most {} bytes", most)});
}

std::shared_ptr<const Tokenizer::Model> make_unigram(UnigramOptions options) {
  return std::make_shared<const Unigram>(std::move(options));
}

}  // namespace orthant
