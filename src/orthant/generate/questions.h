// Many questions to a generator at once, and their answers as tokens and texts. Blocks; for whoever has all prompts
// from the start.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "orthant/serve/generator.h"
#include "orthant/text/tokenizer.h"

namespace orthant {

struct Question {
  std::vector<std::int64_t> prompt;
  SamplingParams sampling = {};
  std::vector<std::string> stop_texts = {};  // the answer ends before the first one of these; needs a tokenizer
};

struct Answer {
  std::vector<GeneratedToken> tokens = {};
  std::string text = {};  // empty without a tokenizer
  FinishReason reason = FinishReason::cancelled;
  std::string error = {};  // with FinishReason::failed, or of a question that was refused
};

std::string_view finish_name(FinishReason reason);  // "stop", "length", "cancelled", "failed"

// Called by the generator's thread with what an answer's text has gained, one call at a time.
using Listener = std::function<void(std::size_t question, const std::string& text)>;

// The answers in the order of the questions. A question that the generator refuses has its error as answer: the others
// go on.
std::vector<Answer> answer_all(Generator& generator, const std::vector<Question>& questions,
                               const std::optional<Tokenizer>& tokenizer, const Listener& listener = {});

}  // namespace orthant
