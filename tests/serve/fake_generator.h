// A generator without a model: its answer to a prompt is a function of prompt and seed, and a test decides when tokens
// come. One thread makes them, a token of each running request in turn.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/serve/generator.h"

namespace orthant::test {

class FakeGenerator : public Generator {
 public:
  explicit FakeGenerator(std::int64_t most = 4096) : most_(most), thread_([this] { run(); }) {}
  ~FakeGenerator() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  // The letter at a place of an answer: lower-case, by prompt, seed and place.
  static std::int64_t letter(const GenerationRequest& request, std::int64_t place) {
    std::uint64_t hash = request.sampling.temperature == 0 ? 7 : request.sampling.seed + 7;
    for (const auto token : request.prompt) hash = hash * 31 + static_cast<std::uint64_t>(token);
    hash = (hash + static_cast<std::uint64_t>(place)) * 0x9e3779b97f4a7c15ULL;
    return 'a' + static_cast<std::int64_t>((hash >> 40) % 26);
  }

  void submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) override {
    check(request.sampling);
    if (request.prompt.empty()) throw DataError("the prompt is empty");
    if (static_cast<std::int64_t>(request.prompt.size()) >= most_) throw DataError("no room");
    const std::lock_guard lock(mutex_);
    running_.push_back({std::move(request), std::move(sink)});
    wake_.notify_all();
    changed_.notify_all();
  }
  void cancel(std::uint64_t id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.insert(id);
    wake_.notify_all();
  }
  GeneratorLoad load() const override {
    const std::lock_guard lock(mutex_);
    GeneratorLoad load;
    load.cache_tokens = most_;
    load.running = static_cast<std::int64_t>(running_.size());
    return load;
  }
  std::int64_t most_tokens() const override { return most_; }

  // No tokens until it goes on.
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    wake_.notify_all();
  }
  // Blocks until so many are running.
  void wait_for_running(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_.size() == count; });
  }
  // What the next request's answer ends with, by an error.
  void fail_next() {
    const std::lock_guard lock(mutex_);
    failing_ = true;
  }

 private:
  struct Answer {
    GenerationRequest request;
    std::shared_ptr<TokenSink> sink;
    std::int64_t made = 0;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!leaving_) {
      for (auto one = running_.begin(); one != running_.end() && !leaving_;) {
        if (cancelled_.erase(one->request.id) > 0) {
          one = end(lock, one, FinishReason::cancelled, "");
        } else if (failing_ && !held_) {
          failing_ = false;
          one = end(lock, one, FinishReason::failed, "the step failed");
        } else if (held_) {
          ++one;
        } else if (one->made == one->request.sampling.max_tokens ||
                   one->made + static_cast<std::int64_t>(one->request.prompt.size()) == most_) {
          one = end(lock, one, FinishReason::length, "");
        } else {
          GeneratedToken token{letter(one->request, one->made++), -0.5};
          for (int i = 0; i < one->request.sampling.logprobs; ++i) token.most.push_back({token.token + i, -0.5 - i});
          auto sink = one->sink;
          lock.unlock();
          const bool more = sink->token(token);
          lock.lock();
          one = more ? std::next(one) : end(lock, one, FinishReason::stop, "");
        }
      }
      changed_.notify_all();
      if (running_.empty() || (held_ && cancelled_.empty())) {
        wake_.wait(lock, [&] { return leaving_ || (!running_.empty() && (!held_ || !cancelled_.empty())); });
      }
    }
  }

  std::list<Answer>::iterator end(std::unique_lock<std::mutex>& lock, std::list<Answer>::iterator one,
                                  FinishReason reason, const std::string& error) {
    auto sink = one->sink;
    lock.unlock();
    sink->finished(reason, error);
    lock.lock();
    changed_.notify_all();
    return running_.erase(one);
  }

  const std::int64_t most_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable changed_;
  std::list<Answer> running_;
  std::set<std::uint64_t> cancelled_;
  bool held_ = false;
  bool failing_ = false;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace orthant::test
