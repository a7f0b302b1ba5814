#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/models/llama/variant.h"
#include "orthant/models/mistral/config.h"

namespace orthant {

// Null: all tokens before a token are seen.
void read_mistral_keys(JsonReader& reader, LlamaConfig& config) {
  constexpr std::string_view kKey = "sliding_window";
  if (!reader.has(kKey)) return;
  config.sliding_window = reader.find<std::int64_t>(kKey).value_or(0);
  if (is_given(reader, kKey) && config.sliding_window < 1) {
    reader.fail(kKey, fmt::format("is {}: a token sees at least itself", config.sliding_window),
                "a window of 1 token or more, or null for none, can be read");
  }
}

void write_mistral_keys(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json["sliding_window"] =
      config.sliding_window > 0 ? nlohmann::ordered_json(config.sliding_window) : nlohmann::ordered_json();
}

const HuggingFaceFamily& mistral_hugging_face() {
  static const HuggingFaceFamily kHuggingFace = [] {
    HuggingFaceFamily folders = llama_like_folders("mistral");
    folders.read = [](JsonReader& reader, const std::string&) { return read_llama_folder(reader, kMistral); };
    return folders;
  }();
  return kHuggingFace;
}

}  // namespace orthant
