// SentencePiece's own models, BPE and Unigram, from a `.model` file, with the ids that the package `sentencepiece`
// gives. As there, no special token goes around a text, and control pieces are not looked for in it.
#pragma once

#include <memory>

#include "orthant/text/sentencepiece_file.h"
#include "orthant/text/tokenizer_model.h"

namespace orthant {

// `add_begin`: the begin piece goes before a document. DataError for pieces that are too long, given twice, or too
// many.
std::shared_ptr<const Tokenizer::Model> make_sentencepiece(const SentencePieceFile& file, bool add_begin = false);

}  // namespace orthant
