#include "orthant/generate/questions.h"

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/serve/text_stream.h"

namespace orthant {
namespace {

// How many questions wait for their answers.
class Waiting {
 public:
  void add() {
    const std::scoped_lock lock(mutex_);
    ++count_;
  }
  void done() {
    const std::scoped_lock lock(mutex_);
    if (--count_ == 0) empty_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::size_t count_ = 0;
};

// While one lives, questions wait for the others.
class Held {
 public:
  explicit Held(Generator& generator) : generator_(generator) { generator_.hold_requests(); }
  ~Held() { generator_.release_requests(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Generator& generator_;
};

// Writes one answer, which outlives it.
class AnswerSink : public TokenSink {
 public:
  AnswerSink(Answer& answer, Waiting& waiting, std::function<void(const std::string&)> listener,
             const Question& question, const std::optional<Tokenizer>& tokenizer)
      : answer_(answer), waiting_(waiting), listener_(std::move(listener)) {
    if (tokenizer) text_.emplace(*tokenizer, TextStreamOptions{.stop_texts = question.stop_texts});
  }

  bool token(const GeneratedToken& token) override {
    answer_.tokens.push_back(token);
    if (!text_) return true;
    say(text_->add(token.token));
    return !text_->stopped();
  }

  void finished(FinishReason reason, const std::string& error) override {
    if (text_) say(text_->finish());
    answer_.reason = text_ && text_->stopped() ? FinishReason::stop : reason;
    answer_.error = error;
    waiting_.done();
  }

 private:
  void say(const std::string& text) {
    answer_.text += text;
    if (listener_ && !text.empty()) listener_(text);
  }

  Answer& answer_;
  Waiting& waiting_;
  std::function<void(const std::string&)> listener_;
  std::optional<TextStream> text_;
};

}  // namespace

std::string_view finish_name(FinishReason reason) {
  constexpr std::array<std::string_view, 4> kNames = {"stop", "length", "cancelled", "failed"};
  return kNames.at(static_cast<std::size_t>(reason));
}

std::vector<Answer> answer_all(Generator& generator, const std::vector<Question>& questions,
                               const std::optional<Tokenizer>& tokenizer, const Listener& listener) {
  std::vector<Answer> answers(questions.size());
  Waiting waiting;
  waiting.add();
  auto held = std::make_unique<Held>(generator);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    std::function<void(const std::string&)> hears;
    if (listener) hears = [&listener, i](const std::string& text) { listener(i, text); };
    auto sink = std::make_shared<AnswerSink>(answers[i], waiting, std::move(hears), questions[i], tokenizer);
    waiting.add();
    try {
      generator.submit({.id = i + 1, .prompt = questions[i].prompt, .sampling = questions[i].sampling},
                       std::move(sink));
    } catch (const Error& error) {
      answers[i] = {.reason = FinishReason::failed, .error = error.message()};
      waiting.done();
    }
  }
  held.reset();
  waiting.done();
  waiting.wait();
  return answers;
}

}  // namespace orthant
