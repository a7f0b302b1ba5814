#include "orthant/generate/engine_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "orthant/base/cache_block.h"
#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/generate/generation_stages.h"

namespace orthant {
namespace {

// How long other ranks hear nothing where nobody asks for anything: well within their patience.
std::chrono::duration<double> quiet_time(double timeout_seconds) {
  return std::chrono::duration<double>(std::clamp(timeout_seconds / 4, 0.05, 10.0));
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.message();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

Engine::Answers::Answers(Ranks& ranks)
    : ranks_(ranks),
      ends_(ranks.ends().begin(), ranks.ends().end()),
      together_(replicas_share_experts(ranks.options().mesh)) {
  const GenerationOptions& options = ranks_.options();
  const SchedulerOptions each{.blocks = ranks_.blocks(),
                              .most_running = options.most_running,
                              .step_tokens = options.step_tokens,
                              .window = ranks_.model().window(),
                              .steps_under_way = options.mesh.degree(Axis::pp)};
  for (int r = 0; r < options.mesh.degree(Axis::dp); ++r) replicas_.push_back({Scheduler(each), {}, {}, {}});
  count_load();
  thread_ = std::thread([this] { run(); });
}

Engine::Answers::~Answers() {
  {
    const std::scoped_lock lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Engine::Answers::check(const GenerationRequest& request) const {
  orthant::check(request.sampling);
  if (request.prompt.empty()) {
    throw DataError("a prompt without tokens: there is nothing to go on from",
                    {.remedy = "give a text, or the model's begin token"});
  }
  for (const auto token : request.prompt) {
    if (token >= 0 && token < ranks_.vocabulary()) continue;
    throw DataError(
        fmt::format("the prompt has token {}; the model's tokens are 0 to {}", token, ranks_.vocabulary() - 1),
        {.remedy = "use the tokenizer of this model"});
  }
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (tokens >= most_tokens()) {
    throw DataError(fmt::format("a prompt of {} tokens leaves no room for an answer: prompt and answer together have "
                                "at most {}",
                                tokens, most_tokens()),
                    {.remedy = "shorten the prompt, or give the cache more tokens where the model has positions left"});
  }
}

void Engine::Answers::submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) {
  check(request);
  const auto room = most_tokens() - static_cast<std::int64_t>(request.prompt.size());
  const auto most = std::min(request.sampling.max_tokens, room);
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (!known_.insert(request.id).second) {
      throw InternalError(fmt::format("request {} is submitted while one of that number runs", request.id));
    }
    inbox_.submitted.push_back({std::move(request), std::move(sink), most});
    ++load_.waiting;
  }
  wake_.notify_all();
}

void Engine::Answers::hold_requests() {
  const std::scoped_lock lock(mutex_);
  ++held_;
}

void Engine::Answers::release_requests() {
  {
    const std::scoped_lock lock(mutex_);
    --held_;
  }
  wake_.notify_all();
}

void Engine::Answers::cancel(std::uint64_t id) {
  {
    const std::scoped_lock lock(mutex_);
    if (!known_.contains(id)) return;
    inbox_.cancelled.push_back(id);
  }
  wake_.notify_all();
}

GeneratorLoad Engine::Answers::load() const {
  const std::scoped_lock lock(mutex_);
  return load_;
}

std::exception_ptr Engine::Answers::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

void Engine::Answers::run() {
  try {
    while (wait_for_work()) {
      take_inbox();
      make_steps();
      count_load();
    }
    // Messages that are under way find their receiver.
    for (int r = 0; r < static_cast<int>(replicas_.size()); ++r) {
      while (!replicas_[to_index(r)].under_way.empty()) settle(r);
    }
    ranks_.end();
    end_all(FinishReason::cancelled, {});
  } catch (...) {
    fail(std::current_exception());
  }
}

// False: the engine ends.
bool Engine::Answers::wait_for_work() {
  const auto busy = [&](const Replica& replica) { return !replica.scheduler.idle() || !replica.under_way.empty(); };
  std::unique_lock lock(mutex_);
  const auto has_work = [&] {
    const bool told = held_ == 0 && (!inbox_.submitted.empty() || !inbox_.cancelled.empty());
    return leaving_ || told || std::ranges::any_of(replicas_, busy);
  };
  const bool others = ranks_.options().mesh.world_size() > 1;
  while (!has_work()) {
    if (!others) {
      wake_.wait(lock, has_work);
    } else if (!wake_.wait_for(lock, quiet_time(ranks_.options().timeout_seconds), has_work)) {
      lock.unlock();
      ranks_.idle();
      lock.lock();
    }
  }
  return !leaving_;
}

void Engine::Answers::take_inbox() {
  Inbox taken;
  {
    const std::scoped_lock lock(mutex_);
    if (held_ == 0) std::swap(taken, inbox_);
  }
  for (auto& answer : taken.submitted) begin(std::move(answer));
  for (const auto id : taken.cancelled) {
    for (auto& replica : replicas_) {
      const auto found =
          std::ranges::find_if(replica.answers, [&](const auto& entry) { return entry.second.request.id == id; });
      if (found != replica.answers.end()) end(replica, found->first, FinishReason::cancelled);
    }
  }
}

// On the replica with the fewest sequences, the first of them.
void Engine::Answers::begin(Answer answer) {
  auto& replica = *std::ranges::min_element(replicas_, {}, [](const Replica& one) { return one.answers.size(); });
  counts_.prompt_tokens += static_cast<std::int64_t>(answer.request.prompt.size());
  const auto sequence = replica.scheduler.add(answer.request.prompt);
  replica.answers.emplace(sequence, std::move(answer));
}

void Engine::Answers::end(Replica& replica, std::uint64_t sequence, FinishReason reason, const std::string& error) {
  auto node = replica.answers.extract(sequence);
  replica.scheduler.remove(sequence);
  replica.ended.push_back(sequence);
  Answer& answer = node.mapped();
  {
    const std::scoped_lock lock(mutex_);
    known_.erase(answer.request.id);
  }
  count_load();  // whoever hears of the end finds it counted
  answer.sink->finished(reason, error);
}

// A step of each replica that has one. Where replicas hold experts for one another, all of them get one or none.
void Engine::Answers::make_steps() {
  bool any = false;
  for (int r = 0; r < static_cast<int>(replicas_.size()); ++r) {
    Replica& replica = replicas_[to_index(r)];
    if (static_cast<int>(replica.under_way.size()) >= ranks_.options().mesh.degree(Axis::pp)) settle(r);
    replica.next = replica.scheduler.next();
    any = any || !replica.next.empty();
  }
  // Rank 0 computes its part of replica 0 before it goes on: the others have their orders by then.
  for (auto r = static_cast<int>(replicas_.size()); r-- > 0;) order_step(r, any && together_);
  for (int r = 0; r < static_cast<int>(replicas_.size()); ++r) {
    Replica& replica = replicas_[to_index(r)];
    if (!replica.ordered && !replica.under_way.empty()) settle(r);
  }
}

void Engine::Answers::order_step(int number, bool together) {
  Replica& replica = replicas_[to_index(number)];
  StepOrder order{.parts = std::exchange(replica.next, {})};
  order.joins = together && order.parts.empty();
  replica.ordered = order.joins || !order.parts.empty();
  if (!replica.ordered) return;
  UnderWay step;
  for (const auto& part : order.parts) {
    const SamplingParams& sampling = replica.answers.at(part.sequence).request.sampling;
    if (part.first) order.begun.push_back(sampling);
    if (part.answer < 0) continue;
    step.sequences.push_back(part.sequence);
    step.logprobs.push_back(sampling.logprobs);
  }
  order.ended = std::exchange(replica.ended, {});
  ranks_.order(number, order);
  replica.under_way.push_back(std::move(step));
}

void Engine::Answers::settle(int number) {
  Replica& replica = replicas_[to_index(number)];
  const UnderWay step = std::move(replica.under_way.front());
  replica.under_way.pop_front();
  const auto tokens = ranks_.take(number, step.logprobs);
  for (std::size_t i = 0; i < step.sequences.size(); ++i) deliver(replica, step.sequences[i], tokens.at(i));
}

void Engine::Answers::deliver(Replica& replica, std::uint64_t sequence, const GeneratedToken& token) {
  if (!replica.scheduler.took(sequence, token.token)) return;  // cancelled meanwhile
  Answer& answer = replica.answers.at(sequence);
  const SamplingParams& sampling = answer.request.sampling;
  const bool stops = std::ranges::find(sampling.stop_tokens, token.token) != sampling.stop_tokens.end();
  if (stops || (!sampling.ignore_end && ends_.contains(token.token))) {
    return end(replica, sequence, FinishReason::stop);
  }
  ++answer.made;
  ++counts_.generated_tokens;
  if (!answer.sink->token(token)) return end(replica, sequence, FinishReason::stop);
  if (answer.made >= answer.most) end(replica, sequence, FinishReason::length);
}

void Engine::Answers::count_load() {
  GeneratorLoad load = counts_;
  for (const auto& replica : replicas_) {
    load.cache_tokens += ranks_.blocks() * kCacheBlock;
    load.used_cache_tokens += replica.scheduler.used_blocks() * kCacheBlock;
    load.running += replica.scheduler.running();
    load.waiting += replica.scheduler.waiting();
    load.preempted += replica.scheduler.preempted();
  }
  const std::scoped_lock lock(mutex_);
  load.waiting += static_cast<std::int64_t>(inbox_.submitted.size());
  load_ = load;
}

void Engine::Answers::end_all(FinishReason reason, const std::string& error) {
  for (auto& replica : replicas_) {
    while (!replica.answers.empty()) end(replica, replica.answers.begin()->first, reason, error);
  }
  std::vector<Answer> submitted;
  {
    const std::scoped_lock lock(mutex_);
    submitted = std::exchange(inbox_.submitted, {});
    known_.clear();
  }
  for (auto& answer : submitted) answer.sink->finished(reason, error);
  count_load();
}

void Engine::Answers::fail(std::exception_ptr failure) {
  {
    const std::scoped_lock lock(mutex_);
    failure_ = failure;
  }
  end_all(FinishReason::failed, text_of(failure));
}

}  // namespace orthant
