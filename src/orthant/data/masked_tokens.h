// Masked language modelling over another data set: of the tokens that are neither special nor padding, about 15% are
// targets; of those 80% become the mask token, 10% any token, and 10% stay. Which ones is a function of (seed, sample
// index, position): the same on every mesh and after every restart. Masks repeat: a sample has the same targets and the
// same replacements in every epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "orthant/data/dataset.h"

namespace orthant {

struct MaskingOptions {
  std::int64_t vocab_size = 0;                 // of the model: a random token is any of them
  std::int64_t mask_id = -1;                   // must be set
  std::vector<std::int64_t> special_ids = {};  // never targets
  double fraction = 0.15;
  std::uint64_t seed = 0;
};

// Reads "input_ids" and, where there is one, "attention_mask" of the other data set. Fields, all [rows, length]:
// "input_ids", "token_type_ids" (zeros) and "labels", int64, and "attention_mask", bool. A row with any token to choose
// has at least one target.
class MaskedTokens : public Dataset {
 public:
  // ConfigError for a fraction outside (0, 1], and for a mask id that is missing or outside of the vocabulary.
  MaskedTokens(std::shared_ptr<const Dataset> source, MaskingOptions options);

  std::int64_t size() const override { return source_->size(); }
  Fields rows(std::span<const std::int64_t> indices) const override;

  const MaskingOptions& options() const { return options_; }

 private:
  bool may_be_target(std::int64_t id) const;
  void mask_row(std::int64_t index, std::span<std::int64_t> ids, const bool* real,
                std::span<std::int64_t> labels) const;

  std::shared_ptr<const Dataset> source_;
  MaskingOptions options_;
};

}  // namespace orthant
