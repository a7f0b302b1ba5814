#include "orthant/models/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/models/family.h"
#include "orthant/models/hugging_face_family.h"

namespace orthant {

namespace fs = std::filesystem;

bool is_given(JsonReader& reader, std::string_view key) {
  return reader.has(key) && !reader.require_raw(key).is_null();
}

void refuse_true(JsonReader& reader, std::string_view key, std::string_view why) {
  if (reader.find<bool>(key).value_or(false)) {
    reader.fail(key, fmt::format("is true: {} is not supported", why), kOtherModel);
  }
}

ActivationFunction read_activation_name(JsonReader& reader, std::string_view key, ActivationFunction standard) {
  const auto name = reader.find<std::string>(key);
  if (!name) return standard;
  if (const auto found = activation_named(*name)) return *found;
  reader.fail(key, fmt::format("the activation \"{}\" is not supported", *name),
              "models with gelu, gelu_new (its tanh form), relu or silu can be read");
}

namespace {

// What any model type may have and what would make it another model.
void refuse_other_mathematics(JsonReader& reader) {
  refuse_true(reader, "is_encoder_decoder", "an encoder with a decoder");
  refuse_true(reader, "add_cross_attention", "cross attention");
  if (is_given(reader, "quantization_config")) {
    reader.fail("quantization_config", "quantized weights are not supported",
                "use the folder of the model before quantization");
  }
  if (is_given(reader, "pruned_heads") && !reader.require_raw("pruned_heads").empty()) {
    reader.fail("pruned_heads",
                fmt::format("found {}: pruned heads are not supported", reader.require_raw("pruned_heads").dump()),
                kOtherModel);
  }
}

ModelConfig read_config(JsonReader reader) {
  const auto type = reader.require<std::string>("model_type");
  refuse_other_mathematics(reader);
  std::vector<std::string> known;
  for (const Family* family : families()) {
    if (family->hugging_face == nullptr) continue;
    const auto& types = family->hugging_face->model_types;
    if (std::ranges::find(types, type) != types.end()) return family->hugging_face->read(reader, type);
    known.insert(known.end(), types.begin(), types.end());
  }
  reader.fail("model_type", fmt::format("models of type \"{}\" are not supported", type),
              fmt::format("use one of {}", fmt::join(known, ", ")));
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view text, const std::string& source) {
  return read_config(JsonReader(JsonDocument::parse(text, {.source = source, .errors = JsonErrorKind::kData})));
}

ModelConfig read_hugging_face_config(const fs::path& folder) {
  const std::string needs =
      "name a folder with config.json and model.safetensors (or its shards), as save_pretrained() or `hf download NAME "
      "--local-dir FOLDER` writes it; nothing is downloaded here";
  if (!is_folder(folder)) {
    throw DataError(fmt::format("{}: no such model folder", folder.string()), {.remedy = needs});
  }
  const auto file = folder / "config.json";
  if (!is_there(file)) {
    throw DataError(fmt::format("{}: no model folder, it has no config.json", folder.string()), {.remedy = needs});
  }
  return read_hugging_face_config_file(file);
}

ModelConfig read_hugging_face_config_file(const fs::path& file) {
  return parse_hugging_face_config(read_text_file(file, JsonOptions().max_bytes), file.string());
}

std::string hugging_face_config_text(const ModelConfig& config, HuggingFaceHead head, DType dtype) {
  const Family& family = config.family();
  if (family.hugging_face != nullptr) return family.hugging_face->config_text(config, head, dtype);
  throw ConfigError(fmt::format("a model of kind {} cannot be written as a Hugging Face folder: there is no such model "
                                "there",
                                family.name),
                    {.remedy = family.without_folder.export_remedy});
}

}  // namespace orthant
