#include "cuda/emulated_card/block.h"

#include <fmt/format.h>

#include <algorithm>

emulated_card::Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulated_card {
namespace {

constexpr int kLanes = 32;
constexpr int kGroup = 4 * kLanes;

}  // namespace

Block& Block::running() {
  static Block block;
  return block;
}

std::string Block::run(void (*kernel)(void**), void** arguments, int threads, bool backwards) {
  kernel_ = kernel;
  arguments_ = arguments;
  count_ = threads;
  started_ = ended_ = 0;
  backwards_ = backwards;
  std::string().swap(failure_);  // without memory that fail() would leave with the text it takes
  failed_ = false;
  idle_.clear();
  for (const auto& fiber : fibers_) idle_.push_back(fiber.get());
  threads_.resize(static_cast<std::size_t>(threads));
  warps_.resize(static_cast<std::size_t>((threads + kLanes - 1) / kLanes));
  ready_.assign(warps_.size(), {});
  num_ready_ = 0;
  groups_.resize(static_cast<std::size_t>((threads + kGroup - 1) / kGroup));
  warp_groups_.assign(groups_.size(), {});
  const auto prepare = [](Meeting& meeting, int first, int live) {
    meeting.first = first;
    meeting.live = live;
    meeting.complete = nullptr;
    meeting.waiting.clear();
    meeting.brought.assign(static_cast<std::size_t>(live), nullptr);
  };
  prepare(all_, 0, threads);
  for (int w = 0; w < static_cast<int>(warps_.size()); ++w) {
    prepare(warps_[static_cast<std::size_t>(w)], w * kLanes, std::min(kLanes, threads - w * kLanes));
  }
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    prepare(groups_[static_cast<std::size_t>(g)], g * kGroup, std::min(kGroup, threads - g * kGroup));
  }
  go_on(&launcher_);
  return failed_ ? fmt::format("thread {}: {}", threadIdx.x, failure_) : failure_;
}

// Runs on a fiber: threads that have not begun, one after the other, until one waits for others and the fiber is its.
void Block::run_threads() {
  Block& block = running();
  while (block.started_ < block.count_) {
    block.start_next();
    block.kernel_(block.arguments_);
    block.end_thread();
  }
  block.idle_.push_back(block.fiber_);
  block.go_on(nullptr);
}

void Block::start_next() {
  const int number = backwards_ ? count_ - 1 - started_ : started_;
  ++started_;
  Thread& next = threads_[static_cast<std::size_t>(number)];
  next.number = number;
  next.fiber = fiber_;
  next.copies.clear();
  next.groups.clear();
  enter(next);
}

void Block::end_thread() {
  ++ended_;
  for (Meeting* meeting : {&warp_of(*thread_), &group_of(*thread_), &all_}) {
    --meeting->live;
    if (!meeting->waiting.empty() && static_cast<int>(meeting->waiting.size()) == meeting->live) complete(*meeting);
  }
}

void Block::enter(Thread& thread) {
  thread_ = &thread;
  fiber_ = thread.fiber;
  threadIdx = {static_cast<unsigned>(thread.number), 0, 0};
}

// A warp goes as far ahead of the others as it can: what it does too early then shows.
Thread& Block::next_ready() {
  auto* own = &ready_[static_cast<std::size_t>(thread_->number) / kLanes];
  for (std::size_t w = 0; own->empty(); ++w) own = &ready_[w];
  Thread& next = *own->back();
  own->pop_back();
  --num_ready_;
  return next;
}

// Another thread's turn; `from`: where to come back to, null when there is nothing to come back to.
void Block::go_on(Place* from) {
  Place* to = &launcher_;
  if (num_ready_ > 0) {
    enter(next_ready());
    to = &thread_->place;
  } else if (started_ < count_) {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      idle_.push_back(fibers_.back().get());
    }
    fiber_ = idle_.back();
    idle_.pop_back();
    to = &fiber_->begin(run_threads);
  } else if (ended_ < count_) {
    failure_ = fmt::format("threads wait for others for ever: {}", who_waits());
  }
  if (from == nullptr) jump_away(*to);
  jump(*from, *to);
}

void Block::meet(Meeting& meeting, const char* what, Complete complete_meeting, void* brought) {
  if (!meeting.waiting.empty() && meeting.complete != complete_meeting) {
    fail(fmt::format("threads that must meet are in {} and in {}", meeting.what, what));
  }
  meeting.what = what;
  meeting.complete = complete_meeting;
  meeting.brought[static_cast<std::size_t>(thread_->number - meeting.first)] = brought;
  Thread& self = *thread_;
  meeting.waiting.push_back(&self);
  if (static_cast<int>(meeting.waiting.size()) == meeting.live) {
    meeting.waiting.pop_back();
    complete(meeting);
    return;
  }
  self.place.stack = self.fiber->stack();
  self.place.bytes = self.fiber->bytes();
  go_on(&self.place);
}

void Block::complete(Meeting& meeting) {
  meeting.complete(meeting.brought.data(), static_cast<int>(meeting.brought.size()));
  std::ranges::fill(meeting.brought, nullptr);
  for (Thread* const thread : meeting.waiting) {
    ready_[static_cast<std::size_t>(thread->number) / kLanes].push_back(thread);
  }
  num_ready_ += meeting.waiting.size();
  meeting.waiting.clear();
}

void Block::meet_warp(const char* what, Complete complete, void* brought) {
  meet(warp_of(*thread_), what, complete, brought);
}

void Block::meet_group(const char* what, Complete complete, void* brought) {
  meet(group_of(*thread_), what, complete, brought);
}

void Block::meet_block(const char* what, Complete complete, void* brought) {
  meet(all_, what, complete, brought);
}

// Nothing on the way back is destroyed: the text moves out before.
void Block::fail(std::string&& text) {
  failure_ = std::move(text);
  failed_ = true;
  jump_away(launcher_);
}

std::string Block::who_waits() const {
  std::string text;
  const auto say = [&](const Meeting& meeting, const std::string& whose) {
    if (meeting.waiting.empty()) return;
    text += fmt::format("{}{} of {} live threads {} in {}", text.empty() ? "" : ", ", meeting.waiting.size(),
                        meeting.live, whose, meeting.what);
  };
  say(all_, "of the block");
  for (std::size_t g = 0; g < groups_.size(); ++g) say(groups_[g], fmt::format("of warp group {}", g));
  for (std::size_t w = 0; w < warps_.size(); ++w) say(warps_[w], fmt::format("of warp {}", w));
  return text;
}

}  // namespace emulated_card

using emulated_card::Block;

extern "C" {

void emulated_meet_warp(const char* what, emulated_card::Complete complete, void* brought) {
  Block::running().meet_warp(what, complete, brought);
}
void emulated_meet_block(const char* what, emulated_card::Complete complete, void* brought) {
  Block::running().meet_block(what, complete, brought);
}
void emulated_fail(const char* text) {
  Block::running().fail(text);
}
}
