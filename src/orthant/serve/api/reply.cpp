#include "orthant/serve/api/reply.h"

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {

Reply::Reply(ReplyPlace place, CompletionRequest request, AnswerHead head, std::shared_ptr<http::Exchange> exchange,
             Done done)
    : place_(std::move(place)),
      request_(std::move(request)),
      head_(std::move(head)),
      exchange_(std::move(exchange)),
      done_(std::move(done)) {
  const auto count = request_.prompts.size() * static_cast<std::size_t>(request_.num_answers);
  ids_.resize(count);
  choices_.resize(count);
  for (std::size_t i = 0; request_.echo && i < count; ++i) {
    choices_[i].text = request_.prompt_texts[i / static_cast<std::size_t>(request_.num_answers)];
  }
  for (const auto& prompt : request_.prompts) usage_.prompt_tokens += static_cast<std::int64_t>(prompt.size());
}

double Reply::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void Reply::submit(std::size_t index) {
  const auto per_prompt = static_cast<std::size_t>(request_.num_answers);
  GenerationRequest asked;
  asked.id = place_.next_id();
  asked.prompt = request_.prompts[index / per_prompt];
  asked.sampling = request_.sampling;
  asked.sampling.seed = seed_of_answer(request_.sampling.seed, index % per_prompt);
  AnswerSink::Options options;
  options.text.stop_texts = request_.stop_texts;
  // A completion goes on with its prompt; what a chat answers stands for itself.
  if (!request_.chat) options.text.context = request_.prompts[index / per_prompt];
  options.logprobs = request_.logprobs;
  options.in_parts = request_.stream;
  ++*place_.waiting;
  auto sink = std::make_shared<AnswerSink>(
      place_.tokenizer, options, place_.waiting,
      [self = shared_from_this(), index, &server = place_.server](AnswerPart part) {
        server.post([self, index, part = std::move(part)]() mutable { self->take(index, std::move(part)); });
      });
  ids_[index] = asked.id;
  place_.generator.submit(std::move(asked), std::move(sink));
}

void Reply::start() {
  exchange_->when_gone = [self = weak_from_this()] {
    const auto reply = self.lock();
    if (!reply || reply->over_) return;
    reply->cancel();
    reply->end(499);
  };
  try {
    for (std::size_t i = 0; i < ids_.size(); ++i) submit(i);
  } catch (const Error& error) {
    over_ = true;
    cancel();
    const bool down = dynamic_cast<const CommError*>(&error) != nullptr;
    const bool theirs = dynamic_cast<const ConfigError*>(&error) || dynamic_cast<const DataError*>(&error);
    throw ApiError(down     ? 503
                   : theirs ? 400
                            : 500,
                   error.remedy().empty() ? error.message() : error.message() + ": " + error.remedy());
  }
  if (!request_.stream) return;
  exchange_->begin(
      {200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}, {}});
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (head_.chat) {
      exchange_->part(role_event(head_, i));
    } else if (request_.echo) {
      exchange_->part(part_event(head_, i, {choices_[i].text}, false, {}));
    }
  }
}

void Reply::take(std::size_t index, AnswerPart part) {
  if (over_) return;
  auto& choice = choices_[index];
  if (part.end && part.end->reason == "failed") {
    ids_[index] = 0;
    return fail(ApiError(place_.is_up() ? 500 : 503, part.end->error));
  }
  if (request_.stream) {
    const auto reason = part.end ? part.end->reason : "";
    if (!part.text.empty() || !part.tokens.empty() || part.end) {
      exchange_->part(part_event(head_, index, part, request_.logprobs, reason));
    }
  } else {
    choice.text += part.text;
    std::ranges::move(part.tokens, std::back_inserter(choice.tokens));
  }
  if (part.end && !over_) finish_choice(index, *part.end);
}

void Reply::finish_choice(std::size_t index, const AnswerEnd& end) {
  ids_[index] = 0;
  choices_[index].finish_reason = end.reason;
  usage_.completion_tokens += end.num_tokens;
  ends_.push_back(end);
  if (ends_.size() == choices_.size()) finish();
}

void Reply::finish() {
  if (request_.stream) {
    if (request_.include_usage) exchange_->part(usage_event(head_, usage_));
    exchange_->part(event_of("[DONE]"));
    exchange_->end();
  } else {
    exchange_->answer(
        {200, {{"Content-Type", "application/json"}}, whole_document(head_, choices_, request_.logprobs, usage_)});
  }
  end(200);
}

void Reply::cancel() {
  for (auto& id : ids_) {
    if (id != 0) place_.generator.cancel(id);
    id = 0;
  }
}

void Reply::fail(const ApiError& error) {
  if (over_) return;
  cancel();
  if (exchange_->begun()) {
    exchange_->part(event_of(error_document(error)));
    exchange_->end();
  } else {
    exchange_->answer(error_answer(error));
  }
  end(error.status);
}

void Reply::end(int status) {
  if (over_) return;
  over_ = true;
  exchange_->when_gone = {};
  if (done_) std::exchange(done_, {})(*this, status);
}

}  // namespace orthant
