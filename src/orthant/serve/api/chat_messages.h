// The messages of a chat request as a template takes them, and the prompt that it makes of them.
#pragma once

#include <optional>
#include <string>

#include "orthant/base/json_reader.h"
#include "orthant/serve/chat_template.h"

namespace orthant {

// Reads messages, tools and what else the template prints from `body`, whose text is `text`. ApiError.
std::string chat_prompt(JsonReader& body, const std::string& text, const std::optional<ChatTemplate>& chat);

}  // namespace orthant
