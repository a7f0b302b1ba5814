// A model as Hugging Face describes it: the config.json of a model folder, in and out. Older and newer key names are
// read and both are written. What would change the mathematics and is not done here is refused by name. Pure: the
// tensors' names are in hugging_face_names.h, their contents elsewhere.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "orthant/graph/dtype.h"
#include "orthant/models/model_config.h"

namespace orthant {

// What folder/config.json says of a model of one of the families that Hugging Face has. Keys that are absent
// have the defaults of that model type there, which are not always ours. The encoder's `path` stays empty. DataError
// that names file and key: no such folder or file, an unknown model_type, a key that asks for what is not done here.
ModelConfig read_hugging_face_config(const std::filesystem::path& folder);

// The same from such a file, wherever it lies.
ModelConfig read_hugging_face_config_file(const std::filesystem::path& file);

// The text of such a file instead of the file; `source` is what errors call it.
ModelConfig parse_hugging_face_config(std::string_view text, const std::string& source);

// What a folder holds besides the body; decides `architectures`.
enum class HuggingFaceHead { none, language_model };

// The text of a config.json. ConfigError for models that Hugging Face does not have.
std::string hugging_face_config_text(const ModelConfig& config, HuggingFaceHead head, DType dtype);

// What such a text says of the head by `architectures`; nothing when it does not say, or for another head. DataError as
// above.
std::optional<HuggingFaceHead> hugging_face_head(std::string_view text, const std::string& source);

// What is to be written besides the model's own values; nothing: as the original has it.
struct ConfigChanges {
  std::optional<HuggingFaceHead> head = {};
  std::optional<DType> dtype = {};
};

// The config.json `original`, called `source` in errors, for what became of its model: keys whose value is another one
// in `config` are changed, `architectures` when the head is another one, `dtype` or `torch_dtype` where it is there.
// All other keys stay, known or not; where nothing changes, the text stays. DataError as above.
std::string rewritten_hugging_face_config(std::string_view original, const std::string& source,
                                          const ModelConfig& config, const ConfigChanges& changes);

}  // namespace orthant
