// What other layers ask about a configured model. Its family answers (Family::facts).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orthant/models/chain_shape.h"
#include "orthant/models/model_config.h"

namespace orthant {

struct NameTable;

// Where weights of a model lie that a `path` of its configuration names.
struct WeightSource {
  std::string path;
  const NameTable* names = nullptr;  // of tensors in a Hugging Face folder
  std::string prefix;                // of the parameters it serves: "primary."; empty: of all
};

// An encoder of a classifier.
struct Tower {
  std::string name;    // "primary"
  std::string prefix;  // of its parameters: another tower's where they share them
  ModelConfig model;   // as a model of its own
  std::int64_t vocab_size = 0;
  std::int64_t pad_token_id = 0;
  bool counts_tokens = false;  // positions are those of tokens that are not padding
  std::optional<std::string> path;
};

// A model that labels the rows of a table.
struct Classifier {
  std::vector<Tower> towers;            // one for each text column: primary, then secondary
  std::optional<std::int64_t> columns;  // numbers of a row; nothing: it reads none
  std::int64_t num_labels = 0;
  std::vector<double> class_weights;  // one per label; empty: all 1
};

struct ModelFacts {
  std::int64_t vocab_size = 0;  // of the primary tower
  std::int64_t max_sequence = 0;
  std::vector<std::string> freeze;                   // patterns of parameter names, see freeze.h
  std::map<std::string, std::int64_t> field_limits;  // of batch fields: ids are below this; others: vocab_size
  std::int64_t pad_token_id = 0;                     // what follows a text that is shorter than others
  bool tied_head = false;                            // the head is the word embedding and owns no matrix
  bool positions_end = true;                         // max_sequence is the end of a table of positions
  std::optional<std::int64_t> dynamic_positions;     // beyond so many, rotary frequencies follow a text's length
  std::vector<WeightSource> sources;                 // of pretrained weights; none: they are drawn
  std::optional<ChainShape> chain;                   // nothing: it is no single chain of layers
  std::optional<Classifier> classifier;

  std::int64_t field_limit(const std::string& field) const {
    const auto found = field_limits.find(field);
    return found == field_limits.end() ? vocab_size : found->second;
  }
};

ModelFacts facts_of(const ModelConfig& config);

}  // namespace orthant
