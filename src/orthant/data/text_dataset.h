// Data kind `text`: samples cut from the token ids of a corpus. Packed, documents follow each other without padding and
// a sample is the next `sequence_length` tokens; otherwise a sample is a document, cut or padded, or a window of one.
// Lengths are known without reading the ids.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "orthant/data/dataset.h"
#include "orthant/data/token_store.h"

namespace orthant {

// A part of a corpus: whole documents, or, of a packed corpus, any range of tokens.
struct TextPart {
  std::int64_t first_token = 0, end_token = 0;
  std::int64_t first_document = 0, end_document = 0;  // that lie in the part whole

  std::int64_t tokens() const { return end_token - first_token; }
};

struct TextSplit {
  TextPart train, eval;  // eval has no tokens when the fraction is 0
};

// The evaluation part is the end of the corpus: its last documents, as many as come nearest to the fraction (of tokens
// when packed, of documents otherwise). Packed, a document end that misses the fraction by more than half of it gives
// way to a cut inside a document. ConfigError for a fraction outside [0, 1), DataError when a part would be empty.
TextSplit split_text(const TokenStore& tokens, double eval_fraction, bool packing);

struct TextDatasetOptions {
  std::int64_t sequence_length = 128;  // input positions
  bool packing = true;
  bool documents = false;        // a field "document_starts"; packed, no target is in another document than its input
  bool whole_documents = false;  // not packed: a document goes on in the next sample where its sequence ends
  bool next_token = true;        // labels: the token after each input. Otherwise inputs alone, for MaskedTokens
  std::int64_t pad_id = 0;       // where a document ends before the sequence does
  std::int64_t vocab_size = 0;   // of the model; 0: ids are not checked
};

// Fields, [rows, sequence_length]: "input_ids" and, with next_token, "labels", both int64; without it and not packed,
// "attention_mask" (bool, true: a token). With `documents`, "document_starts" (int64): for each token the position in
// its row where its document begins; a document that goes on from another sample begins with the row. Packed, sample i
// holds tokens [i L, i L + L] of its part, one token shared with the next sample; without next_token, [i L, i L + L).
// Not packed, a sample is a document of which the first L (+ 1) tokens are taken; documents that give no target are
// left out. With whole_documents a document of n tokens has as many samples as its n - 1 targets (n tokens) need, one
// token shared between two of them as when packed.
class TextDataset : public Dataset {
 public:
  // ConfigError for a model's vocabulary that is too small or a length below 1, DataError for a part too small for one
  // sample.
  TextDataset(std::shared_ptr<const TokenStore> tokens, TextPart part, TextDatasetOptions options);

  std::int64_t size() const override { return size_; }
  Fields rows(std::span<const std::int64_t> indices) const override;
  std::int64_t tokens(const Fields& fields) const override;  // without padding
  Totals totals(std::span<const std::int64_t> indices) const override;

  std::int64_t left_out() const { return left_out_; }  // documents that are too short
  std::int64_t document_of(std::int64_t index) const;  // not packed: of the corpus, from 0
  const TextDatasetOptions& options() const { return options_; }

 private:
  struct Span {
    std::int64_t first, length;  // tokens read; with next_token one more than inputs
  };
  Span span_of(std::int64_t index) const;
  std::int64_t inputs_of(std::int64_t index) const;
  std::vector<std::int64_t> begins_in(const Span& span) const;
  void find_documents();
  void find_windows();

  std::shared_ptr<const TokenStore> tokens_;
  TextPart part_;
  TextDatasetOptions options_;
  std::int64_t size_ = 0;
  std::int64_t left_out_ = 0;
  std::vector<std::int64_t> documents_;  // of the samples; empty: all of the part, in order
  std::vector<Span> windows_;            // of the samples, with whole_documents; `documents_` has an entry for each
};

}  // namespace orthant
