// The JSON documents of OpenAI's API.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/serve/api/answer_sink.h"

namespace orthant {

// Of an answer, what all its documents begin with.
struct AnswerHead {
  bool chat = false;
  std::string id;  // chatcmpl-... or cmpl-...
  std::int64_t created = 0;
  std::string model;
};

struct Choice {
  std::string text;
  std::vector<ChosenToken> tokens = {};
  std::string finish_reason;
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
};

std::string whole_document(const AnswerHead& head, const std::vector<Choice>& choices, bool logprobs,
                           const Usage& usage);

// A server-sent event with a part of one choice; `finish_reason` is empty until its end. The first of a chat has the
// role as well.
std::string part_event(const AnswerHead& head, std::size_t index, const AnswerPart& part, bool logprobs,
                       const std::string& finish_reason);
std::string role_event(const AnswerHead& head, std::size_t index);
std::string usage_event(const AnswerHead& head, const Usage& usage);
std::string event_of(const std::string& document);

// `chat`: the model has a chat template.
std::string models_document(const std::string& name, std::int64_t created, std::int64_t most_tokens, bool chat);

}  // namespace orthant
