// A model that a user names on the command line of `orthant init`: a Hugging Face folder or a preset, what it is and
// whether it brings weights and a tokenizer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "orthant/models/model_config.h"

namespace orthant {

struct NamedModel {
  std::string folder = {};  // empty: a preset
  std::string preset = {};
  bool weights = false;
  bool pickles = false;  // weights that are never read, and no others
  bool tokenizer = false;
  ModelConfig config = {};
  std::int64_t parameters = 0;
};

// A folder, one in models/, or a preset, in this order. ConfigError with the nearest preset when there is neither;
// DataError for a folder that holds no model.
NamedModel find_named_model(const std::string& name);

// The `model` section that has the sizes of a folder's model as numbers, and so starts without its weights.
nlohmann::ordered_json sizes_of_folder(const std::string& folder);

// Of `model` sections: a decoder small enough to learn something on a few cores; and a classifier of a table's rows,
// whose texts are read by one encoder: the model named, or a small one. `tabular` and `num_labels` are for the caller.
nlohmann::ordered_json small_language_model(std::int64_t vocabulary);
nlohmann::ordered_json table_model(const std::optional<NamedModel>& model, std::int64_t vocabulary);

std::int64_t num_parameters(const ModelConfig& config);

}  // namespace orthant
