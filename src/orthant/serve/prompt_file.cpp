#include "orthant/serve/prompt_file.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"

namespace orthant {
namespace {

// What is wrong with a token id; empty: nothing. Lists and objects, which may be of any depth, are named alone.
std::string read_id(const nlohmann::json& id, std::vector<std::int64_t>& ids) {
  const bool fits = id.is_number_integer() && (!id.is_number_unsigned() || id.get<std::uint64_t>() <= INT64_MAX);
  if (!fits) return fmt::format("its token_ids hold {}", id.is_structured() ? id.type_name() : id.dump());
  ids.push_back(id.get<std::int64_t>());
  return {};
}

// What is wrong with the line; empty: nothing.
std::string read_prompt(const std::string& line, PromptGiven& prompt) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return "it is no JSON";
  if (json.is_string()) {
    prompt.text = json.get<std::string>();
    return {};
  }
  if (!json.is_object()) return "it is neither a text nor an object";
  if (const auto text = json.find("prompt"); text != json.end()) {
    if (!text->is_string()) return "its prompt is no text";
    prompt.text = text->get<std::string>();
    return {};
  }
  const auto ids = json.find("token_ids");
  if (ids == json.end()) return "it has neither prompt nor token_ids";
  if (!ids->is_array()) return "its token_ids are no list";
  for (const auto& id : *ids) {
    if (auto fault = read_id(id, prompt.ids); !fault.empty()) return fault;
  }
  return {};
}

}  // namespace

PromptFile read_prompts(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(fmt::format("{}: cannot be read", path), {.remedy = "give a file of JSON lines"});
  return read_prompts(file, path);
}

PromptFile read_prompts(std::istream& file, const std::string& source) {
  PromptFile found;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PromptGiven prompt;
    if (auto fault = read_prompt(line, prompt); !fault.empty()) {
      found.bad.push_back({number, std::move(fault)});
      continue;
    }
    found.prompts.push_back(std::move(prompt));
    found.lines.push_back(number);
  }
  if (found.prompts.empty()) {
    const auto first = found.bad.empty() ? std::string("it is empty")
                                         : fmt::format("line {}: {}", found.bad.front().line, found.bad.front().error);
    throw DataError(fmt::format("{}: has no prompt; {}", source, first),
                    {.remedy = "write one JSON text, {\"prompt\": ...} or {\"token_ids\": [...]} a line"});
  }
  return found;
}

}  // namespace orthant
