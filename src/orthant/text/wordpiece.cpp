#include "orthant/text/wordpiece.h"

#include <fmt/format.h>

#include <array>

#include "orthant/base/error.h"
#include "orthant/text/bert_normalizer.h"
#include "orthant/text/bert_words.h"
#include "orthant/text/piece_trie.h"

namespace orthant {
namespace {

// What decode() writes differently, in this order, within each token and the blank before it.
constexpr std::array<std::array<std::string_view, 2>, 11> kCleanings = {{{" .", "."},
                                                                         {" ?", "?"},
                                                                         {" !", "!"},
                                                                         {" ,", ","},
                                                                         {" ' ", "'"},
                                                                         {" n't", "n't"},
                                                                         {" 'm", "'m"},
                                                                         {" do not", " don't"},
                                                                         {" 's", "'s"},
                                                                         {" 've", "'ve"},
                                                                         {" 're", "'re"}}};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

class WordPiece : public Tokenizer::Model {
 public:
  explicit WordPiece(const WordPieceOptions& options)
      : Model(Vocabulary(options.vocabulary, options.source)),
        prefix_(options.prefix),
        max_word_(options.max_word),
        clean_decoded_(options.clean_decoded),
        unknown_(find_unknown(options)),
        normalizer_({.clean = options.clean_text,
                     .ideographs = options.handle_chinese_chars,
                     .strip_accents = options.strip_accents.value_or(options.lowercase),
                     .lowercase = options.lowercase},
                    characters_),
        words_(characters_),
        pieces_(PieceTrie::of_words(vocabulary(), options.prefix, options.source)) {
    start(options.parts, fmt::format("{} {} {} {} {} {} {} {}", options.unknown, options.prefix, options.max_word,
                                     options.lowercase, options.strip_accents.value_or(options.lowercase),
                                     options.handle_chinese_chars, options.clean_text, options.clean_decoded));
  }

  std::string kind() const override { return "WordPiece"; }

 protected:
  std::string_view normalize(std::string_view piece, std::string& buffer) const override {
    return normalizer_.normalize(piece, buffer);
  }

  void encode_words(std::string_view piece, Place, std::vector<std::int32_t>& ids) const override {
    words_.for_each(
        piece, [&](std::string_view word, std::int64_t num_characters) { encode_word(word, num_characters, ids); });
  }
  bool words_may_be_cut() const override { return true; }
  std::string decode_known(std::span<const std::int32_t> ids) const override;

 private:
  std::int32_t find_unknown(const WordPieceOptions& options) const {
    if (const auto id = vocabulary().find(options.unknown)) return *id;
    throw DataError(
        fmt::format("{}: the unknown token \"{}\" is not in the vocabulary", options.source, options.unknown),
        {.remedy = fmt::format("add a line {}, or use the vocabulary the model was trained with", options.unknown)});
  }

  void encode_word(std::string_view word, std::int64_t num_characters, std::vector<std::int32_t>& ids) const;

  std::string prefix_;
  std::int64_t max_word_;
  bool clean_decoded_;
  std::int32_t unknown_;
  BertCharacters characters_;
  BertNormalizer normalizer_;
  BertWords words_;
  PieceTrie pieces_;
};

void WordPiece::encode_word(std::string_view word, std::int64_t num_characters, std::vector<std::int32_t>& ids) const {
  if (num_characters > max_word_) return ids.push_back(unknown_);
  const std::size_t num_before = ids.size();
  auto root = PieceTrie::Root::kBegin;
  while (!word.empty()) {
    const auto match = pieces_.longest(root, word);
    if (match.length == 0) {
      ids.resize(num_before);
      return ids.push_back(unknown_);
    }
    ids.push_back(match.id);
    word.remove_prefix(match.length);
    root = PieceTrie::Root::kContinue;
  }
}

std::string WordPiece::decode_known(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const AddedToken* added_token = added().find(std::int64_t{ids[i]});
    std::string token(added_token != nullptr ? std::string_view(added_token->content) : vocabulary().token(ids[i]));
    if (i > 0) {
      if (token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else {
        token.insert(0, 1, ' ');
      }
    }
    if (clean_decoded_) {
      for (const auto& [from, to] : kCleanings) replace_all(token, from, to);
    }
    text += token;
  }
  return text;
}

}  // namespace

std::shared_ptr<const Tokenizer::Model> make_wordpiece(const WordPieceOptions& options) {
  return std::make_shared<WordPiece>(options);
}

}  // namespace orthant
