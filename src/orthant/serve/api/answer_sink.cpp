#include "orthant/serve/api/answer_sink.h"

#include "orthant/base/error.h"

namespace orthant {
namespace {

double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

AnswerSink::AnswerSink(const Tokenizer& tokenizer, const Options& options,
                       std::shared_ptr<std::atomic<std::int64_t>> waiting, std::function<void(AnswerPart)> deliver)
    : tokenizer_(tokenizer),
      stream_(tokenizer, options.text),
      logprobs_(options.logprobs),
      in_parts_(options.in_parts),
      waiting_(std::move(waiting)),
      deliver_(std::move(deliver)) {}

void AnswerSink::stop_waiting() {
  if (waiting_) --*std::exchange(waiting_, nullptr);
}

// As it reads behind another token: at the begin of a text some tokenizers leave a token's space out.
std::string AnswerSink::bytes_of(std::int64_t token) const {
  if (token < 0 || token > INT32_MAX) return "";
  const std::int32_t twice[] = {static_cast<std::int32_t>(token), static_cast<std::int32_t>(token)};
  try {
    const auto once = tokenizer_.decode(std::span(twice).first(1));
    const auto both = tokenizer_.decode(twice);
    return both.starts_with(once) ? both.substr(once.size()) : once;
  } catch (const DataError&) {
    return "";
  }
}

ChosenToken AnswerSink::chosen(const GeneratedToken& token) const {
  ChosenToken out{bytes_of(token.token), stream_.token_begin(), token.logprob};
  for (const auto& one : token.most) out.most.emplace_back(bytes_of(one.token), one.logprob);
  return out;
}

bool AnswerSink::token(const GeneratedToken& token) {
  stop_waiting();
  if (num_tokens_++ == 0) first_ = std::chrono::steady_clock::now();
  part_.text += stream_.add(token.token);
  if (logprobs_) part_.tokens.push_back(chosen(token));
  if (in_parts_ && !stream_.stopped() && (!part_.text.empty() || !part_.tokens.empty())) {
    deliver_(std::exchange(part_, {}));
  }
  return !stream_.stopped();
}

void AnswerSink::finished(FinishReason reason, const std::string& error) {
  stop_waiting();
  part_.text += stream_.finish();
  const auto now = std::chrono::steady_clock::now();
  AnswerEnd end;
  end.reason = reason == FinishReason::stop || stream_.stopped() ? "stop"
               : reason == FinishReason::length                  ? "length"
               : reason == FinishReason::cancelled               ? "cancelled"
                                                                 : "failed";
  end.error = error;
  end.num_tokens = num_tokens_;
  end.first_token_seconds = num_tokens_ > 0 ? seconds_between(began_, first_) : 0;
  end.token_seconds = num_tokens_ > 1 ? seconds_between(first_, now) / static_cast<double>(num_tokens_ - 1) : 0;
  part_.end = std::move(end);
  deliver_(std::exchange(part_, {}));
}

}  // namespace orthant
