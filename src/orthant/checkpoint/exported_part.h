// What of a stored model becomes a folder: all of it, or one tower of a classifier; and under which names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "orthant/checkpoint/weight_reader.h"
#include "orthant/models/hugging_face_names.h"
#include "orthant/models/model_config.h"

namespace orthant {

class ExportedPart {
 public:
  // `tower` is primary, secondary, or empty for the whole model. ConfigError for other towers, and for models that
  // cannot be folders.
  ExportedPart(const ModelConfig& model, const std::string& tower);

  const ModelConfig& config() const { return config_; }
  const std::string& prefix() const { return prefix_; }  // of its parameters in the checkpoint
  // A whole classifier, whose folder is of our own kind.
  bool is_classifier() const;

  // Of a parameter of the checkpoint; nothing when it has no place in the folder. `bare`: see hugging_face_name().
  std::optional<HuggingFaceName> name(const std::string& parameter, bool bare) const;

  // DataError unless every parameter of the body is there in its shape: what is written can be read again.
  void check_complete(const WeightReader& reader, const std::filesystem::path& checkpoint) const;

 private:
  ModelConfig config_;
  std::string prefix_;
};

}  // namespace orthant
