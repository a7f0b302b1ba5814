// From the messages of a conversation to the text that a model was trained to go on with. Models bring a template in
// the language Jinja; this reads the part of it that public templates use (docs/serve.md), as `apply_chat_template` of
// transformers does, byte for byte.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace orthant {

// What a template prints besides the messages.
struct ChatInput {
  const nlohmann::ordered_json* messages = nullptr;   // a list of objects; must be given
  const nlohmann::ordered_json* tools = nullptr;      // null: none
  const nlohmann::ordered_json* documents = nullptr;  // null: none
  const nlohmann::ordered_json* more = nullptr;       // an object of further variables, such as enable_thinking
  bool add_generation_prompt = true;                  // end where the assistant begins to speak
};

// A handle: copies share what was read, which never changes. Safe from several threads.
class ChatTemplate {
 public:
  // DataError "SOURCE:LINE: ..." for what is not supported.
  static ChatTemplate parse(std::string_view text, const std::string& source);

  // The tokens that a tokenizer_config.json names are variables of the template: bos_token, eos_token and others.
  ChatTemplate with_tokens(const nlohmann::ordered_json& tokenizer_config) const;

  // DataError for messages that the template refuses, or that it fails on.
  std::string render(const ChatInput& input) const;

  const std::string& source() const;

  struct State;

 private:
  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// The template of a model's folder, from chat_template.jinja or tokenizer_config.json. `choice` is --chat-template: a
// name of chat_template_names(), a file, or empty: the folder's own, nothing where it has none. ConfigError for a
// choice that is neither, DataError for a template that cannot be read.
std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& folder, const std::string& choice);

}  // namespace orthant
