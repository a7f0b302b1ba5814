// Which tokens of which sequences the next step of a generation computes, and which blocks of the cache each sequence
// holds. One for each replica of the model; ranks follow its decisions. Pure.
//
// Note [Steps and places]: all running sequences decode side by side, and what a step has left goes to prompts, the
// first admitted first, in chunks. A waiting sequence is admitted, first come first served, when the blocks that its
// tokens so far need are free beside those that prompts under way still need. A running sequence that needs a block
// when none is free takes the place of the one admitted last (which may be itself): that one waits in front of all
// others with its answer so far, and is computed again from its first token. So the one admitted first always goes on,
// and nothing is lost. Blocks behind a sliding window are given back. Steps run in order on every rank: a block that is
// given back while a step that reads it is under way may be handed out at once.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace orthant {

struct SchedulerOptions {
  std::int64_t blocks = 0;         // of the cache
  std::int64_t most_running = 64;  // sequences
  std::int64_t step_tokens =
      256;                  // new tokens of a step: of one sequence, and of all where no more than so many decode
  std::int64_t window = 0;  // that all attention of the model has; 0: keys are never forgotten
  int steps_under_way = 1;  // of which each takes its part of the running sequences
};

// One sequence's part of a step.
struct StepPart {
  std::uint64_t sequence = 0;
  bool first = false;     // of this sequence, ever
  std::int64_t past = 0;  // tokens that the cache has
  std::vector<std::int64_t> tokens = {};
  std::int64_t answer = -1;  // the place in the answer of the token that follows; -1: more of the prompt does
  std::vector<std::int32_t> blocks = {};
  friend bool operator==(const StepPart&, const StepPart&) = default;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // The new sequence's number. The prompt and one token more fit into the cache: see holds().
  std::uint64_t add(std::vector<std::int64_t> prompt);
  // Its blocks are free at once. A token that is still on its way to it is told to took() in vain. Unknown ones: none.
  void remove(std::uint64_t sequence);

  // The next step; empty when nothing can be computed before tokens of steps under way come back.
  std::vector<StepPart> next();
  // The token that a step with `answer` gave the sequence. Whether it is still known.
  bool took(std::uint64_t sequence, std::int64_t token);

  // Tokens, prompt and answer together, that the cache holds for one sequence.
  std::int64_t holds() const;
  std::int64_t used_blocks() const { return options_.blocks - static_cast<std::int64_t>(free_.size()); }
  std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t preempted() const { return preempted_; }
  bool idle() const { return sequences_.empty(); }

 private:
  struct Sequence {
    std::vector<std::int64_t> tokens;  // prompt, then answer
    std::int64_t prompt = 0;
    std::int64_t computed = 0;  // whose keys are in the cache, or will be after the steps under way
    bool awaits = false;        // a token of a step under way
    bool begun = false;
    std::vector<std::int32_t> blocks = {};
    std::int64_t behind = 0;  // blocks that were given back

    std::int64_t left() const { return static_cast<std::int64_t>(tokens.size()) - computed; }
    std::int64_t held() const { return static_cast<std::int64_t>(blocks.size()) - behind; }
  };

  std::int64_t needs(const Sequence& sequence) const;
  void admit();
  void give_back(Sequence& sequence);
  void forget_behind(Sequence& sequence);
  void preempt(std::uint64_t victim, std::vector<StepPart>& step);
  bool take_blocks(std::uint64_t number, std::int64_t tokens, std::vector<StepPart>& step);
  bool schedule(std::uint64_t number, std::int64_t tokens, std::vector<StepPart>& step);

  SchedulerOptions options_;
  std::map<std::uint64_t, Sequence> sequences_;
  std::vector<std::uint64_t> running_;  // in the order of admission
  std::deque<std::uint64_t> waiting_;
  std::vector<std::int32_t> free_;
  std::uint64_t next_number_ = 1;
  std::int64_t preempted_ = 0;
};

}  // namespace orthant
