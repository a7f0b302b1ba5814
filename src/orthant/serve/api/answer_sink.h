// Takes the tokens of one answer on the generator's thread and turns them into what a client is sent: text that is
// certain, log-probabilities beside it, and why it ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orthant/serve/generator.h"
#include "orthant/serve/text_stream.h"

namespace orthant {

// A token as it is told with logprobs.
struct ChosenToken {
  std::string bytes;       // of its text; they need not be UTF-8
  std::int64_t begin = 0;  // in characters of the answer
  double logprob = 0;
  std::vector<std::pair<std::string, double>> most = {};
};

struct AnswerEnd {
  std::string reason;  // as the API has it: stop, length; else cancelled or failed
  std::string error;
  std::int64_t num_tokens = 0;
  double first_token_seconds = 0;  // since the answer was asked for
  double token_seconds = 0;        // between tokens, on average; 0 for a single one
};

struct AnswerPart {
  std::string text;
  std::vector<ChosenToken> tokens = {};
  std::optional<AnswerEnd> end = {};
};

class AnswerSink : public TokenSink {
 public:
  struct Options {
    TextStreamOptions text = {};
    bool logprobs = false;
    bool in_parts = false;  // parts leave as they come; else one part at the end
  };
  // `waiting` counts answers without a first token, this one included. `deliver` is called on the generator's thread.
  AnswerSink(const Tokenizer& tokenizer, const Options& options, std::shared_ptr<std::atomic<std::int64_t>> waiting,
             std::function<void(AnswerPart)> deliver);
  ~AnswerSink() override { stop_waiting(); }

  bool token(const GeneratedToken& token) override;
  void finished(FinishReason reason, const std::string& error) override;

 private:
  void stop_waiting();
  ChosenToken chosen(const GeneratedToken& token) const;
  std::string bytes_of(std::int64_t token) const;

  Tokenizer tokenizer_;
  TextStream stream_;
  bool logprobs_;
  bool in_parts_;
  std::shared_ptr<std::atomic<std::int64_t>> waiting_;
  std::function<void(AnswerPart)> deliver_;
  AnswerPart part_;
  std::int64_t num_tokens_ = 0;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point first_ = {};
};

}  // namespace orthant
