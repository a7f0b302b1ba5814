#include "orthant/text/character_bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/text/byte_tokens.h"
#include "orthant/text/shown.h"
#include "orthant/text/space_mark.h"
#include "orthant/text/unicode.h"
#include "orthant/text/word_cache_pool.h"

namespace orthant {
namespace {

std::int32_t unknown_of(const CharacterBpeOptions& options, const Vocabulary& tokens) {
  if (options.unknown.empty()) return -1;
  if (const auto id = tokens.find(options.unknown)) return *id;
  throw DataError(fmt::format("{}: unk_token \"{}\" is not in the vocabulary", options.source, options.unknown),
                  {.remedy = "add it to the vocabulary"});
}

// See Note [Words at marks].
bool has_words_at_marks(const CharacterBpeOptions& options, const Vocabulary& tokens) {
  if (options.ignore_merges || !tokens.find(kSpaceMark)) return false;
  return std::ranges::none_of(options.merges,
                              [](const auto& merge) { return has_mark_inside(merge.first + merge.second); });
}

std::string describe_settings(const CharacterBpeOptions& options) {
  return fmt::format("characters\n{}\nignore_merges {}\nbytes {}\nunknown {} {}\n{}\n{}\n{}", describe(options.merges),
                     options.ignore_merges, options.byte_fallback, options.fuse_unknown, options.unknown,
                     options.normalizer.describe(), options.words.describe(), options.decoder.describe());
}

class CharacterBpe : public Tokenizer::Model {
 public:
  explicit CharacterBpe(CharacterBpeOptions options)
      : Model(Vocabulary(options.tokens, options.source)),
        merges_(merges_of(options.merges, vocabulary(), options.source)),
        ignore_merges_(options.ignore_merges),
        fuse_unknown_(options.fuse_unknown),
        bytes_(options.byte_fallback ? ByteTokens(vocabulary()) : ByteTokens()),
        byte_fallback_(options.byte_fallback),
        unknown_(unknown_of(options, vocabulary())),
        words_at_marks_(has_words_at_marks(options, vocabulary())),
        normalizer_(options.normalizer),
        words_(options.words),
        decoder_(options.decoder) {
    start(options.parts, describe_settings(options));
  }

  std::string kind() const override { return "BPE"; }

 protected:
  std::string_view normalize(std::string_view piece, std::string& buffer) const override {
    return normalizer_.apply_replacing(piece, buffer);
  }

  void encode_words(std::string_view piece, Place place, std::vector<std::int32_t>& ids) const override {
    const WordCachePool::Borrowed cache(caches_);
    const auto make = [this](std::string_view word, std::vector<std::int32_t>& made) { encode_word(word, made); };
    const auto add = [&](std::string_view word) { cache.ids_of(word, ids, make); };
    words_.split(piece, place, [&](std::string_view word) {
      if (words_at_marks_) {
        for_each_marked_word(word, add);
      } else {
        add(word);
      }
    });
  }

  bool words_may_be_cut() const override { return false; }

  std::string decode_known(std::span<const std::int32_t> ids) const override { return decoder_.decode(tokens_of(ids)); }

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (ignore_merges_) {
      if (const auto id = vocabulary().find(word)) return ids.push_back(*id);
    }
    const auto from = ids.size();
    // An unknown character waits for the next known one: bytes that come meanwhile go before it.
    bool waiting = false;
    const auto flush = [&] {
      if (waiting) ids.push_back(unknown_);
      waiting = false;
    };
    for (std::size_t at = 0; at < word.size();) {
      const auto length = static_cast<std::size_t>(unicode::decode_valid(word.data() + at).length);
      const auto character = word.substr(at, length);
      at += length;
      if (const auto id = vocabulary().find(character)) {
        flush();
        ids.push_back(*id);
      } else if (!(byte_fallback_ && bytes_.add(character, ids))) {
        if (!fuse_unknown_) flush();
        check_unknown(character);
        waiting = true;
      }
    }
    flush();
    merges_.apply(ids, from);
  }

  void check_unknown(std::string_view character) const {
    if (unknown_ >= 0) return;
    throw DataError(fmt::format("the vocabulary has no token for {}, and no unk_token", shown(character)),
                    {.remedy = "use a vocabulary with all characters of the text, or set unk_token"});
  }

  BpeMerges merges_;
  bool ignore_merges_;
  bool fuse_unknown_;
  ByteTokens bytes_;
  bool byte_fallback_;
  std::int32_t unknown_;
  bool words_at_marks_;
  TextNormalizer normalizer_;
  PreTokenizer words_;
  TokenDecoder decoder_;
  mutable WordCachePool caches_;
};

}  // namespace

std::shared_ptr<const Tokenizer::Model> make_character_bpe(CharacterBpeOptions options) {
  return std::make_shared<const CharacterBpe>(std::move(options));
}

}  // namespace orthant
