#include "orthant/text/unigram.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"
#include "orthant/text/shown.h"
#include "orthant/text/unigram_search.h"

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
  return fmt::format("scores {:016x}\nbytes {}\nunknown {}", xxh64(std::as_bytes(std::span(options.scores))),
                     options.byte_fallback, options.unknown.value_or(-1));
}

class Unigram : public WordModel {
 public:
  explicit Unigram(const UnigramOptions& options)
      : WordModel(options),
        search_(search_of(vocabulary(), options.scores, options.source)),
        unknown_(options.unknown) {
    start(options.parts, describe_settings(options) + "\n" + describe_rules(options));
  }

  std::string kind() const override { return "Unigram"; }

 protected:
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override {
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

 private:
  void add_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (text.empty()) return;
    if (const auto id = vocabulary().find(text)) return ids.push_back(*id);
    if (!add_bytes(text, ids)) ids.push_back(*unknown_);
  }

  [[noreturn]] static void refuse_unknown(std::string_view character) {
    throw DataError(fmt::format("the vocabulary has no piece for {}, and no unk_id", shown(character)),
                    {.remedy = "use a vocabulary with all characters of the text, or set unk_id"});
  }

  UnigramSearch search_;
  std::optional<std::int32_t> unknown_;
};

}  // namespace

void check_piece_length(std::string_view piece, std::size_t most, const std::string& source) {
  if (piece.size() <= most) return;
  throw DataError(fmt::format("{}: the piece {} has {} bytes", source, shown(piece), piece.size()),
                  {.remedy = fmt::format("use a vocabulary whose pieces have at most {} bytes", most)});
}

std::shared_ptr<const Tokenizer::Model> make_unigram(const UnigramOptions& options) {
  return std::make_shared<const Unigram>(options);
}

}  // namespace orthant
