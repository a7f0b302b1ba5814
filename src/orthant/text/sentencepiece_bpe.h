// BPE as SentencePiece does it: any two neighbours merge whose text together is a piece, that of the greatest score
// first, leftmost first. As a table of merges over ids, so that bpe_merges.h does the work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "orthant/text/bpe_merges.h"
#include "orthant/text/piece_trie.h"
#include "orthant/text/sentencepiece_file.h"
#include "orthant/text/unicode.h"
#include "orthant/text/vocabulary.h"

namespace orthant {

// Immutable once built, safe from several threads.
class SentencePieceBpe {
 public:
  static constexpr std::size_t kMaxPieceBytes = 512;

  // `frozen` are the pieces that users defined: they are found first, and never merge. Both must outlive this.
  SentencePieceBpe(const SentencePieceFile& file, const Vocabulary& vocabulary, const PieceTrie& frozen);

  // Hands every piece of a normalised word, in order, to `piece(std::string_view, id)`; -1: an unknown character.
  template <typename Piece>
  void encode(std::string_view word, const Piece& piece) const;

  // Whether words can be encoded one by one, see Note [Words at marks].
  bool has_words_at_marks() const { return words_at_marks_; }

 private:
  // The piece of a text, unless it is a reserved one; -1: none.
  std::int32_t piece_of(std::string_view text) const;
  // The symbol of a character: its id, or one of its own behind all ids when it is no piece but a part of one; -1:
  // none.
  std::int32_t symbol_of(std::string_view character) const;
  void fill_merges(const SentencePieceFile& file);
  template <typename Piece>
  void finish(std::string_view text, std::vector<std::int32_t>& symbols, const Piece& piece) const;

  const Vocabulary& vocabulary_;
  const PieceTrie& frozen_;
  std::vector<bool> reserved_;                                  // by id: pieces that no text becomes
  std::vector<std::string> parts_;                              // characters that are only parts of pieces
  std::unordered_map<std::string, std::int32_t> part_symbols_;  // their symbols
  BpeMerges merges_;
  bool words_at_marks_ = false;
};

template <typename Piece>
void SentencePieceBpe::finish(std::string_view text, std::vector<std::int32_t>& symbols, const Piece& piece) const {
  merges_.apply(symbols, 0);
  for (const auto symbol : symbols) {
    const bool is_part = symbol >= vocabulary_.size();
    const auto length = is_part ? parts_[static_cast<std::size_t>(symbol - vocabulary_.size())].size()
                                : vocabulary_.token(symbol).size();
    piece(text.substr(0, length), is_part ? -1 : symbol);
    text.remove_prefix(length);
  }
  symbols.clear();
}

template <typename Piece>
void SentencePieceBpe::encode(std::string_view word, const Piece& piece) const {
  std::vector<std::int32_t> symbols;
  std::size_t begin = 0;  // of the text of `symbols`
  for (std::size_t at = 0; at < word.size();) {
    const auto match = frozen_.longest(PieceTrie::Root::kBegin, word.substr(at));
    const auto length =
        match.length > 0 ? match.length : static_cast<std::size_t>(unicode::decode_valid(word.data() + at).length);
    const auto symbol = match.length > 0 ? -1 : symbol_of(word.substr(at, length));
    if (symbol < 0) {
      finish(word.substr(begin, at - begin), symbols, piece);
      piece(word.substr(at, length), match.length > 0 ? match.id : -1);
      begin = at + length;
    } else {
      symbols.push_back(symbol);
    }
    at += length;
  }
  finish(word.substr(begin), symbols, piece);
}

}  // namespace orthant
