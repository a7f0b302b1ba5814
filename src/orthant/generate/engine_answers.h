// The requests of an engine on rank 0: a thread that schedules steps, orders them and hands out their tokens. Internal
// to this layer.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "orthant/generate/engine_ranks.h"
#include "orthant/serve/scheduler.h"

namespace orthant {

class Engine::Answers final : public Generator {
 public:
  explicit Answers(Ranks& ranks);
  ~Answers() override;

  void submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) override;
  void hold_requests() override;
  void release_requests() override;
  void cancel(std::uint64_t id) override;
  GeneratorLoad load() const override;
  std::int64_t most_tokens() const override { return ranks_.most_tokens(); }
  std::exception_ptr failure() const;

 private:
  struct Answer {
    GenerationRequest request;
    std::shared_ptr<TokenSink> sink;
    std::int64_t most = 0;  // tokens
    std::int64_t made = 0;
  };
  struct UnderWay {  // a step's parts with an answer
    std::vector<std::uint64_t> sequences;
    std::vector<int> logprobs;
  };
  struct Replica {
    Scheduler scheduler;
    std::map<std::uint64_t, Answer> answers;  // by sequence
    std::deque<UnderWay> under_way;
    std::vector<std::uint64_t> ended;  // that its ranks have not been told
    std::vector<StepPart> next = {};   // of the step that is about to be ordered
    bool ordered = false;              // there was one
  };
  struct Inbox {
    std::vector<Answer> submitted;
    std::vector<std::uint64_t> cancelled;
  };

  void check(const GenerationRequest& request) const;
  void run();
  bool wait_for_work();
  void take_inbox();
  void begin(Answer answer);
  void end(Replica& replica, std::uint64_t sequence, FinishReason reason, const std::string& error = {});
  void make_steps();
  void order_step(int number, bool together);
  void settle(int number);
  void deliver(Replica& replica, std::uint64_t sequence, const GeneratedToken& token);
  void count_load();
  void end_all(FinishReason reason, const std::string& error);
  void fail(std::exception_ptr failure);

  Ranks& ranks_;
  std::set<std::int64_t> ends_;
  bool together_;  // replicas compute their steps together
  std::vector<Replica> replicas_;
  GeneratorLoad counts_;  // of the thread: what only grows

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  Inbox inbox_;
  int held_ = 0;                   // by so many: the inbox waits
  std::set<std::uint64_t> known_;  // requests that have not ended
  GeneratorLoad load_;
  bool leaving_ = false;
  std::exception_ptr failure_;

  std::thread thread_;
};

}  // namespace orthant
