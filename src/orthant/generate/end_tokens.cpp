#include "orthant/generate/end_tokens.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/checkpoint/original_files.h"
#include "orthant/files/path_facts.h"
#include "orthant/text/tokenizer.h"

namespace orthant {
namespace {

constexpr const char* kEndKey = "eos_token_id";

// Nothing where the text does not say.
std::optional<std::vector<std::int64_t>> listed_ends(const std::string& text, const std::string& source) {
  const auto json = *parse_json(text, {.source = source, .errors = JsonErrorKind::kData}).value;
  const auto found = json.is_object() ? json.find(kEndKey) : json.end();
  if (found == json.end() || found->is_null()) return {};
  const auto items = found->is_array() ? *found : nlohmann::json::array({*found});
  std::vector<std::int64_t> ends;
  for (const auto& item : items) {
    if (!item.is_number_integer()) {
      throw DataError(fmt::format("{}: {} is {}", source, kEndKey, found->dump()),
                      {.remedy = "write a token's id, a list of ids, or null"});
    }
    ends.push_back(item.get<std::int64_t>());
  }
  return ends;
}

}  // namespace

std::vector<std::int64_t> end_tokens(const StoredModel& model) {
  if (model.checkpoint || is_there(model.folder / "config.json")) {
    const SavedFiles files = original_files(model.folder);
    for (const char* name : {"generation_config.json", kOriginalConfigFile}) {
      const auto file = files.find(name);
      if (file == files.end()) continue;
      if (const auto ends = listed_ends(file->second, (model.folder / name).string())) return *ends;
    }
  }
  if (!Tokenizer::available() || !holds_tokenizer_files(model.companions)) return {};
  const auto tokenizer = Tokenizer::load(tokenizer_folder(model.companions, ""));
  if (const auto end = tokenizer.special().end) return {*end};
  return {};
}

}  // namespace orthant
