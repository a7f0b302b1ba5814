// One request for text on its way: its answers come from the generator, and leave together or in parts. Lives until the
// last answer has ended; used on the server's thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orthant/http/server.h"
#include "orthant/serve/api/completion_request.h"
#include "orthant/serve/api/documents.h"
#include "orthant/serve/generator.h"

namespace orthant {

// What a reply needs of the service.
struct ReplyPlace {
  Generator& generator;
  http::Server& server;
  const Tokenizer& tokenizer;
  std::shared_ptr<std::atomic<std::int64_t>> waiting;
  std::function<std::uint64_t()> next_id;
  std::function<bool()> is_up;  // whether the generator can be asked
};

class Reply : public std::enable_shared_from_this<Reply> {
 public:
  // `done` is called once, with the status.
  using Done = std::function<void(const Reply& reply, int status)>;
  Reply(ReplyPlace place, CompletionRequest request, AnswerHead head, std::shared_ptr<http::Exchange> exchange,
        Done done);

  // Asks the generator. ApiError when it refuses; then nothing was sent.
  void start();
  // The answers end here, with an error for the client.
  void fail(const ApiError& error);

  const Usage& usage() const { return usage_; }
  double seconds() const;
  const std::vector<AnswerEnd>& ends() const { return ends_; }

 private:
  void submit(std::size_t index);
  void take(std::size_t index, AnswerPart part);
  void finish_choice(std::size_t index, const AnswerEnd& end);
  void finish();
  void cancel();
  void end(int status);

  ReplyPlace place_;
  CompletionRequest request_;
  AnswerHead head_;
  std::shared_ptr<http::Exchange> exchange_;
  Done done_;
  std::vector<std::uint64_t> ids_;  // by choice; 0: it has ended
  std::vector<Choice> choices_;
  std::vector<AnswerEnd> ends_;
  Usage usage_;
  bool over_ = false;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace orthant
