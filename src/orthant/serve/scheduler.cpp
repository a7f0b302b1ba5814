#include "orthant/serve/scheduler.h"

#include <algorithm>
#include <utility>

#include "orthant/base/cache_block.h"

namespace orthant {
namespace {

std::int64_t blocks_for(std::int64_t tokens) {
  return (tokens + kCacheBlock - 1) / kCacheBlock;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options) {
  for (auto block = options_.blocks; block-- > 0;) free_.push_back(static_cast<std::int32_t>(block));
}

std::uint64_t Scheduler::add(std::vector<std::int64_t> prompt) {
  const auto number = next_number_++;
  Sequence sequence;
  sequence.prompt = static_cast<std::int64_t>(prompt.size());
  sequence.tokens = std::move(prompt);
  sequences_.emplace(number, std::move(sequence));
  waiting_.push_back(number);
  return number;
}

void Scheduler::remove(std::uint64_t number) {
  const auto found = sequences_.find(number);
  if (found == sequences_.end()) return;
  give_back(found->second);
  std::erase(running_, number);
  std::erase(waiting_, number);
  sequences_.erase(found);
}

bool Scheduler::took(std::uint64_t number, std::int64_t token) {
  const auto found = sequences_.find(number);
  if (found == sequences_.end()) return false;
  found->second.tokens.push_back(token);
  found->second.awaits = false;
  return true;
}

std::int64_t Scheduler::holds() const {
  if (options_.window == 0) return options_.blocks * kCacheBlock;
  // Its tokens never end, once a window and a step fit.
  const auto most = std::int64_t{1} << 40;
  return blocks_for(options_.window + options_.step_tokens) + 1 <= options_.blocks ? most
                                                                                   : options_.blocks * kCacheBlock;
}

std::int64_t Scheduler::needs(const Sequence& sequence) const {
  const auto all = blocks_for(static_cast<std::int64_t>(sequence.tokens.size()) + 1);
  if (options_.window == 0) return all;
  return std::min(all, blocks_for(options_.window + options_.step_tokens) + 1);
}

void Scheduler::admit() {
  auto room = static_cast<std::int64_t>(free_.size());
  for (const auto number : running_) {
    const Sequence& sequence = sequences_.at(number);
    room -= std::max<std::int64_t>(needs(sequence) - sequence.held(), 0);
  }
  while (!waiting_.empty() && running() < options_.most_running) {
    const Sequence& next = sequences_.at(waiting_.front());
    if (needs(next) > room) return;
    room -= needs(next);
    running_.push_back(waiting_.front());
    waiting_.pop_front();
  }
}

void Scheduler::give_back(Sequence& sequence) {
  for (auto i = sequence.behind; i < static_cast<std::int64_t>(sequence.blocks.size()); ++i) {
    free_.push_back(sequence.blocks[static_cast<std::size_t>(i)]);
  }
  sequence.blocks.clear();
  sequence.behind = 0;
  sequence.computed = 0;
}

void Scheduler::forget_behind(Sequence& sequence) {
  if (options_.window == 0) return;
  const auto first_met = sequence.computed - options_.window + 1;
  while ((sequence.behind + 1) * kCacheBlock <= first_met) {
    auto& block = sequence.blocks[static_cast<std::size_t>(sequence.behind++)];
    free_.push_back(block);
    block = -1;
  }
}

void Scheduler::preempt(std::uint64_t victim, std::vector<StepPart>& step) {
  Sequence& sequence = sequences_.at(victim);
  const auto scheduled = std::ranges::find(step, victim, &StepPart::sequence);
  if (scheduled != step.end()) {
    if (scheduled->answer >= 0) sequence.awaits = false;
    if (scheduled->first) sequence.begun = false;
    step.erase(scheduled);
  }
  give_back(sequence);
  std::erase(running_, victim);
  waiting_.push_front(victim);
  ++preempted_;
}

// So that positions below `tokens` have places. False: the sequence itself had to give its place up.
bool Scheduler::take_blocks(std::uint64_t number, std::int64_t tokens, std::vector<StepPart>& step) {
  Sequence& sequence = sequences_.at(number);
  while (static_cast<std::int64_t>(sequence.blocks.size()) < blocks_for(tokens)) {
    if (free_.empty()) {
      const auto victim = running_.back();
      preempt(victim, step);
      if (victim == number) return false;
      continue;
    }
    sequence.blocks.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

bool Scheduler::schedule(std::uint64_t number, std::int64_t tokens, std::vector<StepPart>& step) {
  Sequence& sequence = sequences_.at(number);
  forget_behind(sequence);
  if (!take_blocks(number, sequence.computed + tokens, step)) return false;
  const auto all = static_cast<std::int64_t>(sequence.tokens.size());
  const auto begin = sequence.tokens.begin() + sequence.computed;
  StepPart part{.sequence = number, .first = !sequence.begun, .past = sequence.computed};
  part.tokens.assign(begin, begin + tokens);
  part.blocks = sequence.blocks;
  sequence.begun = true;
  sequence.computed += tokens;
  if (sequence.computed == all) {
    part.answer = all - sequence.prompt;
    sequence.awaits = true;
  }
  step.push_back(std::move(part));
  return true;
}

std::vector<StepPart> Scheduler::next() {
  admit();
  std::vector<StepPart> step;
  auto budget = std::max(options_.step_tokens, options_.most_running);
  auto share = (running() + options_.steps_under_way - 1) / options_.steps_under_way;
  const auto known = running_;
  const auto runs = [&](std::uint64_t number) { return std::ranges::find(running_, number) != running_.end(); };
  for (const bool decodes : {true, false}) {
    for (const auto number : known) {
      if (budget == 0 || share == 0) return step;
      if (!runs(number)) continue;
      const Sequence& sequence = sequences_.at(number);
      if (sequence.awaits || (sequence.left() == 1) != decodes) continue;
      const auto tokens = std::min({sequence.left(), budget, options_.step_tokens});
      if (tokens == 0 || !schedule(number, tokens, step)) continue;
      budget -= tokens;
      --share;
    }
  }
  return step;
}

}  // namespace orthant
