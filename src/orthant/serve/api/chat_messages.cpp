#include "orthant/serve/api/chat_messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/serve/api/api_error.h"

namespace orthant {
namespace {

using Ordered = nlohmann::ordered_json;  // templates print tools with their keys as they came

constexpr std::size_t kMostMessages = 4096;

[[noreturn]] void refuse_message(std::size_t index, const std::string& what) {
  throw ApiError(400, fmt::format("messages[{}]: {}", index, what), "messages");
}

// Texts of the parts, with a line break between them.
std::string joined_parts(const Ordered& parts, std::size_t index) {
  std::string text;
  for (const auto& part : parts) {
    if (!part.is_object() || !part.contains("type") || !part.at("type").is_string()) {
      refuse_message(index, "a part of the content has no type");
    }
    const auto& type = part.at("type").get_ref<const std::string&>();
    if (type != "text")
      refuse_message(index, fmt::format("content of type {} is not supported: the model reads text", type));
    if (!part.contains("text") || !part.at("text").is_string())
      refuse_message(index, "a part of type text has no text");
    if (!text.empty()) text += '\n';
    text += part.at("text").get_ref<const std::string&>();
  }
  return text;
}

// The API has arguments as the text of a JSON object, templates as the object.
void read_arguments(Ordered& message) {
  if (!message.contains("tool_calls") || !message.at("tool_calls").is_array()) return;
  for (auto& call : message.at("tool_calls")) {
    if (!call.is_object() || !call.contains("function") || !call.at("function").is_object()) continue;
    auto& called = call.at("function");
    if (!called.contains("arguments") || !called.at("arguments").is_string()) continue;
    auto arguments = Ordered::parse(called.at("arguments").get<std::string>(), nullptr, /*allow_exceptions=*/false);
    if (arguments.is_object()) called.at("arguments") = std::move(arguments);
  }
}

void read_message(Ordered& message, std::size_t index) {
  if (!message.is_object()) refuse_message(index, "a message is an object with role and content");
  if (!message.contains("role") || !message.at("role").is_string() || message.at("role").get<std::string>().empty()) {
    refuse_message(index, "a message has a role: system, user, assistant or tool");
  }
  const bool calls =
      message.contains("tool_calls") && message.at("tool_calls").is_array() && !message.at("tool_calls").empty();
  if (message.contains("tool_calls") && !calls) message.erase("tool_calls");
  if (!message.contains("content") || message.at("content").is_null()) {
    if (!calls) refuse_message(index, "content is missing");
    message["content"] = nullptr;
  } else if (message.at("content").is_array()) {
    message.at("content") = joined_parts(message.at("content"), index);
  } else if (!message.at("content").is_string()) {
    refuse_message(index, "content is a text or a list of parts");
  }
  read_arguments(message);
}

void check_tool_choice(JsonReader& body, bool& with_tools) {
  if (!body.has("tool_choice") || body.is_null("tool_choice")) return;
  const auto& choice = body.require_raw("tool_choice");
  const auto word = choice.is_string() ? choice.get<std::string>() : "a function";
  if (word == "none") {
    with_tools = false;
  } else if (word != "auto") {
    throw ApiError(400, fmt::format("tool_choice {} is not supported: use none or auto", word), "tool_choice");
  }
}

}  // namespace

std::string chat_prompt(JsonReader& body, const std::string& text, const std::optional<ChatTemplate>& chat) {
  if (!chat) {
    throw ApiError(400,
                   "the model has no chat template: use /v1/completions, or start the server with --chat-template");
  }
  const auto document = Ordered::parse(text);
  const auto find = [&](const char* name) -> const Ordered* {
    if (!body.has(name)) return nullptr;
    body.require_raw(name);
    const auto& value = document.at(name);
    return value.is_null() ? nullptr : &value;
  };
  body.require_raw("messages");
  auto messages = document.at("messages");
  if (!messages.is_array() || messages.empty())
    throw ApiError(400, "messages is a list of at least one message", "messages");
  if (messages.size() > kMostMessages) {
    throw ApiError(400, fmt::format("{} messages: at most {}", messages.size(), kMostMessages), "messages");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) read_message(messages[i], i);
  const auto* tools = find("tools");
  if (tools && !tools->is_array()) throw ApiError(400, "tools is a list", "tools");
  if (tools && tools->empty()) tools = nullptr;
  bool with_tools = true;
  check_tool_choice(body, with_tools);
  const auto* documents = find("documents");
  Ordered more = Ordered::object();
  if (const auto* given = find("chat_template_kwargs")) {
    if (!given->is_object()) throw ApiError(400, "chat_template_kwargs is an object", "chat_template_kwargs");
    more = *given;
  }
  if (const auto* effort = find("reasoning_effort")) more["reasoning_effort"] = *effort;
  const bool prompted = body.find<bool>("add_generation_prompt").value_or(true);
  try {
    return chat->render({.messages = &messages,
                         .tools = with_tools ? tools : nullptr,
                         .documents = documents,
                         .more = &more,
                         .add_generation_prompt = prompted});
  } catch (const DataError& error) {
    throw ApiError(400, error.message(), "messages");
  }
}

}  // namespace orthant
