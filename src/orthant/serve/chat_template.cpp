#include "orthant/serve/chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/files/whole_file.h"
#include "orthant/serve/carried_files.h"
#include "orthant/serve/jinja/parser.h"
#include "orthant/serve/jinja/run.h"

namespace orthant {

struct ChatTemplate::State {
  std::string source;
  std::shared_ptr<const jinja::Statements> statements;
  jinja::Dict tokens;  // by role: bos_token, ...
};

namespace {

using Json = nlohmann::ordered_json;

std::string local_time(const std::string& format) {
  const auto now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::string text(4096, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return text;
}

// What a config calls a token is its text, or an object that has it.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value.at("content").is_string()) {
    return value.at("content").get<std::string>();
  }
  return std::nullopt;
}

Json read_config(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  auto config = Json::parse(read_text_file(path), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    throw DataError(fmt::format("{} is no JSON object", path.string()), {.remedy = "fetch the file again"});
  }
  return config;
}

// A config's template: a text, or a list of named ones, of which the one without another purpose is taken.
std::optional<std::string> config_template(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const auto& one : *found) {
    if (one.is_object() && one.value("name", "") == "default" && one.contains("template") &&
        one.at("template").is_string()) {
      return one.at("template").get<std::string>();
    }
  }
  return std::nullopt;
}

ChatTemplate chosen_template(const std::string& choice) {
  const auto names = chat_template_names();
  if (std::ranges::find(names, choice) != names.end()) {
    return ChatTemplate::parse(carried_file(fmt::format("templates/{}.jinja", choice)), choice);
  }
  if (std::filesystem::is_regular_file(choice)) return ChatTemplate::parse(read_text_file(choice), choice);
  throw ConfigError(fmt::format("--chat-template {}: no template of that name, and no such file", choice),
                    {.remedy = fmt::format("use {}, or the path of a Jinja file", fmt::join(names, ", "))});
}

std::optional<ChatTemplate> folder_template(const std::filesystem::path& folder, const Json& config) {
  const auto file = folder / "chat_template.jinja";
  if (std::filesystem::is_regular_file(file)) return ChatTemplate::parse(read_text_file(file), file.string());
  const auto text = config_template(config);
  if (!text) return std::nullopt;
  return ChatTemplate::parse(*text, (folder / "tokenizer_config.json").string() + " (chat_template)");
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& source) {
  auto state = std::make_shared<State>();
  state->source = source;
  state->statements = std::make_shared<const jinja::Statements>(jinja::parse_template(text, source));
  return ChatTemplate(std::move(state));
}

ChatTemplate ChatTemplate::with_tokens(const Json& tokenizer_config) const {
  auto state = std::make_shared<State>(*state_);
  for (const auto& [key, value] : tokenizer_config.items()) {
    const auto text = key.ends_with("_token") ? token_text(value) : std::nullopt;
    if (text) state->tokens.set(key, jinja::Value::text(*text));
  }
  return ChatTemplate(std::move(state));
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

std::string ChatTemplate::render(const ChatInput& input) const {
  auto variables = state_->tokens;
  const auto given = [](const Json* json) { return json ? jinja::from_json(*json) : jinja::Value(); };
  try {
    if (input.more) {
      for (const auto& [key, value] : input.more->items()) variables.set(key, jinja::from_json(value));
    }
    variables.set("messages", given(input.messages));
    variables.set("tools", given(input.tools));
    variables.set("documents", given(input.documents));
  } catch (const jinja::Problem& problem) {
    throw DataError(problem.message, {.remedy = "write messages, tools and arguments of calls with less nesting"});
  }
  variables.set("add_generation_prompt", jinja::Value::boolean(input.add_generation_prompt));
  return jinja::run_template(*state_->statements, state_->source, variables, local_time);
}

std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& folder, const std::string& choice) {
  const auto config = read_config(folder / "tokenizer_config.json");
  const auto found = choice.empty() ? folder_template(folder, config) : std::optional(chosen_template(choice));
  if (!found) return std::nullopt;
  return found->with_tokens(config);
}

}  // namespace orthant
