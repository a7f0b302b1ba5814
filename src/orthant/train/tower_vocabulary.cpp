#include "orthant/train/tower_vocabulary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "orthant/base/error.h"
#include "orthant/models/family.h"
#include "orthant/text/tokenizer.h"
#include "orthant/train/model_folders.h"

namespace orthant {
namespace {

// The text at a place of the document; empty when there is none.
std::string text_at(const nlohmann::json& root, const std::string& section, const std::string& key) {
  const nlohmann::json::json_pointer place("/" + section + "/" + key);
  return root.contains(place) && root.at(place).is_string() ? root.at(place).get<std::string>() : "";
}

}  // namespace

void follow_tokenizers(JsonDocument& document) {
  const auto* const family = find_family(text_at(document.value(), "model", "kind"));
  if (family == nullptr || family->task != Task::classification) return;
  for (const std::string tower : {"primary", "secondary"}) {
    const nlohmann::json::json_pointer size("/model/" + tower + "/vocab_size");
    if (!document.value().contains(size) || !document.value().at(size).is_null()) continue;
    const auto key = tower + "_tokenizer";
    auto name = text_at(document.value(), "data", key);
    if (name.empty()) name = text_at(document.value(), "data", "tokenizer");
    if (name.empty()) {
      throw ConfigError(fmt::format("model.{}.vocab_size is null, and there is no data.{} to follow", tower, key),
                        {.remedy = fmt::format("set data.{}, or model.{}.vocab_size to a number", key, tower)});
    }
    const auto tokenizer = Tokenizer::load(require_tokenizer(name, "data." + key));
    document.apply_override(fmt::format("model.{}.vocab_size={}", tower, tokenizer.vocab_size()),
                            fmt::format("data.{}:", key));
  }
}

}  // namespace orthant
