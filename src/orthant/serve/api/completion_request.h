// A request of OpenAI's API as this server understands it. What it cannot do is refused by name, never passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/serve/api/api_error.h"
#include "orthant/serve/chat_template.h"
#include "orthant/serve/sampling.h"
#include "orthant/text/tokenizer.h"

namespace orthant {

// What requests are read against.
struct ServedModel {
  std::string name;
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;
  std::int64_t most_tokens = 0;  // of a prompt and its answer
  std::int64_t vocabulary = 0;   // tokens that the model knows, often a few more than the tokenizer
};

struct CompletionRequest {
  bool chat = false;
  std::vector<std::vector<std::int64_t>> prompts;
  std::vector<std::string> prompt_texts = {};  // with echo
  int num_answers = 1;                         // of each prompt
  SamplingParams sampling = {};
  std::vector<std::string> stop_texts = {};
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  bool logprobs = false;
};

// ApiError.
CompletionRequest read_completion(const std::string& body, const ServedModel& model);
CompletionRequest read_chat(const std::string& body, const ServedModel& model);

// The seed of one of several answers to a request, as `orthant generate --n` has it.
std::uint64_t seed_of_answer(std::uint64_t seed, std::size_t answer);

}  // namespace orthant
