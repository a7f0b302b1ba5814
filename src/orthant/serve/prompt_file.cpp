#include "orthant/serve/prompt_file.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "orthant/base/error.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

// Of a request; here they are those of the command line, alike for all prompts.
constexpr const char* kForAll[] = {"temperature", "top_k", "top_p",    "min_p", "repetition_penalty",
                                   "stop",        "seed",  "logprobs", "n"};

// Lists and objects, which may be of any depth, are named alone.
std::string shown(const nlohmann::json& value) {
  return value.is_structured() ? value.type_name() : value.dump();
}

bool is_number_from(const nlohmann::json& value, std::int64_t least) {
  return value.is_number_integer() && value >= least && value <= std::numeric_limits<std::int32_t>::max();
}

// What is wrong with the prompt of an object; empty: nothing.
std::string read_tokens(const nlohmann::json& line, PromptGiven& prompt) {
  if (const auto text = line.find("prompt"); text != line.end()) {
    if (!text->is_string()) return "its prompt is no text";
    prompt.text = text->get<std::string>();
    return {};
  }
  const auto ids = line.find("token_ids");
  if (ids == line.end()) return "it has neither prompt nor token_ids";
  if (!ids->is_array()) return "its token_ids are no list";
  for (const auto& id : *ids) {
    if (!is_number_from(id, 0)) return fmt::format("its token_ids hold {}", shown(id));
    prompt.ids.push_back(id.get<std::int64_t>());
  }
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
  if (const auto most = json.find("max_tokens"); most != json.end()) {
    if (!is_number_from(*most, 1)) return fmt::format("its max_tokens is {}", shown(*most));
    prompt.max_tokens = most->get<std::int64_t>();
  }
  for (const char* name : kForAll) {
    if (json.contains(name)) return fmt::format("it has {}, which the command line has for all prompts", name);
  }
  return read_tokens(json, prompt);
}

}  // namespace

PromptFile read_prompts(const std::string& path) {
  std::istringstream text(read_text_file(path));
  return read_prompts(text, path);
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
