// Unigram language models from a tokenizer.json: T5, XLM-R, ALBERT and their kind. Of all ways to cut a word into
// pieces the one with the greatest sum of scores is taken.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/text/word_model.h"

namespace orthant {

struct UnigramOptions : WordModelOptions {
  std::vector<double> scores;           // by id, one for each token
  std::optional<std::int32_t> unknown;  // its id; without one a character that is no piece is a DataError of encode()
};

// DataError for pieces longer than kMaxPieceBytes and whatever Vocabulary refuses.
inline constexpr std::size_t kMaxPieceBytes = 4096;
void check_piece_length(std::string_view piece, std::size_t most, const std::string& source);
std::shared_ptr<const Tokenizer::Model> make_unigram(const UnigramOptions& options);

}  // namespace orthant
