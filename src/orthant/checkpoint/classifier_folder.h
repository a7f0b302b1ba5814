// A whole classifier as a folder that needs no run: config.json of a model_type of its own with the run's sections
// `model` and `data`, preprocessing.json, tokenizers/primary and tokenizers/secondary, and safetensors. Names of
// tensors are Family::tensor_name.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "orthant/checkpoint/weight_reader.h"
#include "orthant/graph/dtype.h"
#include "orthant/models/family.h"

namespace orthant {

// Whether a config.json is that of such a folder.
bool is_classifier_folder(const nlohmann::json& config);

// The text of its config.json, from the run's: without where weights, tokenizers and data came from. `source` is for
// errors. DataError unless the configuration is a run's.
std::string classifier_config_text(nlohmann::json run, const Family& family, const std::string& source, DType dtype);

// The weights of such a folder under our names. DataError as open_weights(). Collective over `ranks`.
std::shared_ptr<const WeightReader> open_classifier_folder(const std::filesystem::path& folder,
                                                           const ModelConfig& config, const ControlGroup& ranks = {});

}  // namespace orthant
