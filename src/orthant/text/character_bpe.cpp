#include "orthant/text/character_bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/text/shown.h"
#include "orthant/text/space_mark.h"
#include "orthant/text/unicode.h"

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
  return fmt::format("characters\n{}\nignore_merges {}\nbytes {}\nunknown {} {}", describe(options.merges),
                     options.ignore_merges, options.byte_fallback, options.fuse_unknown, options.unknown);
}

class CharacterBpe : public WordModel {
 public:
  explicit CharacterBpe(const CharacterBpeOptions& options)
      : WordModel(options),
        merges_(merges_of(options.merges, vocabulary(), options.source)),
        ignore_merges_(options.ignore_merges),
        fuse_unknown_(options.fuse_unknown),
        unknown_(unknown_of(options, vocabulary())),
        words_at_marks_(has_words_at_marks(options, vocabulary())) {
    start(options.parts, describe_settings(options) + "\n" + describe_rules(options));
  }

  std::string kind() const override { return "BPE"; }

 protected:
  bool words_at_marks() const override { return words_at_marks_; }

  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override {
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
      } else if (!add_bytes(character, ids)) {
        if (!fuse_unknown_) flush();
        check_unknown(character);
        waiting = true;
      }
    }
    flush();
    merges_.apply(ids, from);
  }

 private:
  void check_unknown(std::string_view character) const {
    if (unknown_ >= 0) return;
    throw DataError(fmt::format("the vocabulary has no token for {}, and no unk_token", shown(character)),
                    {.remedy = "use a vocabulary with all characters of the text, or set unk_token"});
  }

  BpeMerges merges_;
  bool ignore_merges_;
  bool fuse_unknown_;
  std::int32_t unknown_;
  bool words_at_marks_;
};

}  // namespace

std::shared_ptr<const Tokenizer::Model> make_character_bpe(const CharacterBpeOptions& options) {
  return std::make_shared<const CharacterBpe>(options);
}

}  // namespace orthant
