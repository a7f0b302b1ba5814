// Stacks on which the threads of a block run in turn, on one thread of the process. A jump costs some nanoseconds: the
// C library's own switch of contexts asks the kernel for signal masks each time. The address sanitizer is told.
#pragma once

#include <csetjmp>
#include <cstddef>

namespace emulated_card {

// A place in the code of one stack to go on at. Lives where its stack or its owner does.
struct Place {
  std::jmp_buf registers;
  const void* stack = nullptr;  // its lowest byte
  std::size_t bytes = 0;
  void* hidden = nullptr;  // the address sanitizer's own
};

class Fiber {
 public:
  // Of a size that kernels do with; a page below it may not be touched.
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Each jump to it begins `run` anew, on an empty stack. `run` never returns: it jumps away.
  Place& begin(void (*run)());

  const void* stack() const { return stack_; }
  std::size_t bytes() const;

 private:
  static void enter();

  void* stack_ = nullptr;
  void (*run_)() = nullptr;
  Place begin_;
};

// Where the process's own thread is, and not a fiber.
void note_own_stack(Place& place);

// Goes on at `to`; returns when another jumps to `from`.
void jump(Place& from, Place& to);
// Goes on at `to`, and nothing comes back here.
[[noreturn]] void jump_away(Place& to);

}  // namespace emulated_card
