// A block of threads of the emulated card: see Note [Emulated card] in card.h. One runs at a time in a process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/emulated_card/card.h"
#include "cuda/emulated_card/fiber.h"

namespace emulated_card {

struct Copy {
  unsigned to = 0;
  const void* from = nullptr;
  unsigned bytes = 0;
  unsigned taken = 0;  // the rest is 0
};

struct Thread {
  int number = 0;
  Place place;                      // where it waits
  Fiber* fiber = nullptr;           // that it runs on
  std::vector<Copy> copies;         // under way
  std::vector<std::size_t> groups;  // of them: the number of copies before each group's end
};

// Products that four warps have begun, in their order, each thread's part one after the other.
struct WarpGroup {
  std::vector<EmulatedProduct> parts;
  std::vector<std::size_t> groups;  // the number of parts before each group's end
};

// Threads that wait for one another.
struct Meeting {
  int first = 0;  // thread
  int live = 0;   // threads that have not ended
  const char* what = nullptr;
  Complete complete = nullptr;
  std::vector<Thread*> waiting;
  std::vector<void*> brought;
};

class Block {
 public:
  static Block& running();

  // Once for the blocks of a launch, by the thread of the process that runs them.
  void enter_launch() { note_own_stack(launcher_); }

  // Runs `kernel` once in each thread, in decreasing order where `backwards` is set. Empty, or what went wrong.
  std::string run(void (*kernel)(void** arguments), void** arguments, int threads, bool backwards);

  void meet_warp(const char* what, Complete complete, void* brought);
  void meet_block(const char* what, Complete complete, void* brought);
  // Of four warps.
  void meet_group(const char* what, Complete complete, void* brought);
  WarpGroup& warp_group() { return warp_groups_[static_cast<std::size_t>(thread_->number) / 128]; }
  [[noreturn]] void fail(std::string&& text);

  Thread& thread() { return *thread_; }
  bool copies_arrive_at_once() const { return backwards_; }

 private:
  static void run_threads();
  void start_next();
  void end_thread();
  void meet(Meeting& meeting, const char* what, Complete complete, void* brought);
  void complete(Meeting& meeting);
  void go_on(Place* from);
  void enter(Thread& thread);
  Thread& next_ready();
  Meeting& warp_of(const Thread& thread) { return warps_[static_cast<std::size_t>(thread.number) / 32]; }
  Meeting& group_of(const Thread& thread) { return groups_[static_cast<std::size_t>(thread.number) / 128]; }
  std::string who_waits() const;

  void (*kernel_)(void**) = nullptr;
  void** arguments_ = nullptr;
  int count_ = 0;
  int started_ = 0;
  int ended_ = 0;
  bool backwards_ = false;
  Thread* thread_ = nullptr;
  Fiber* fiber_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Meeting> warps_;
  std::vector<Meeting> groups_;
  std::vector<WarpGroup> warp_groups_;
  Meeting all_;
  std::vector<std::vector<Thread*>> ready_;  // to go on, per warp, the next one last
  std::size_t num_ready_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Place launcher_;
  std::string failure_;
  bool failed_ = false;  // the running thread, not the block as a whole
};

}  // namespace emulated_card
