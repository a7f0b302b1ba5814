#include "cuda/emulated_card/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ORTHANT_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ORTHANT_ADDRESS_SANITIZER 1
#endif
#if ORTHANT_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated_card {
namespace {

#if ORTHANT_ADDRESS_SANITIZER
constexpr std::size_t kStackBytes = 512 << 10;
void leave(Place* from, const Place& to) {
  __sanitizer_start_switch_fiber(from == nullptr ? nullptr : &from->hidden, to.stack, to.bytes);
}
void arrive(Place& at) {
  __sanitizer_finish_switch_fiber(at.hidden, nullptr, nullptr);
  at.hidden = nullptr;
}
void note_stack(Place& place) {
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  void* stack = nullptr;
  pthread_attr_getstack(&attributes, &stack, &place.bytes);
  pthread_attr_destroy(&attributes);
  place.stack = stack;
}
#else
constexpr std::size_t kStackBytes = 64 << 10;
void leave(Place* /*from*/, const Place& /*to*/) {}
void arrive(Place& /*at*/) {}
void note_stack(Place& /*place*/) {}
#endif

// While a fiber is made: makecontext() hands on no pointers.
Fiber* being_made = nullptr;
ucontext_t maker, made;

}  // namespace

Fiber::Fiber() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* const memory = static_cast<char*>(
      mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) throw std::bad_alloc();
  stack_ = memory + page;
}

std::size_t Fiber::bytes() const {
  return kStackBytes;
}

Place& Fiber::begin(void (*run)()) {
  run_ = run;
  if (begin_.stack != nullptr) return begin_;
  begin_.stack = stack_;
  begin_.bytes = kStackBytes;
  getcontext(&made);
  made.uc_stack.ss_sp = stack_;
  made.uc_stack.ss_size = kStackBytes;
  made.uc_link = nullptr;
  makecontext(&made, enter, 0);
  being_made = this;
  Place here;
  note_own_stack(here);
  leave(&here, begin_);
  swapcontext(&maker, &made);
  arrive(here);
  return begin_;
}

// Notes where the stack is empty and goes back; every jump to that place runs on from there.
__attribute__((no_sanitize("address"))) void Fiber::enter() {
  Fiber* const volatile self = being_made;
  arrive(self->begin_);
  if (_setjmp(self->begin_.registers) == 0) {
    Place back;
    note_own_stack(back);
    leave(&self->begin_, back);
    setcontext(&maker);
  }
  arrive(self->begin_);
  self->run_();
}

void note_own_stack(Place& place) {
  note_stack(place);
}

void jump(Place& from, Place& to) {
  leave(&from, to);
  if (_setjmp(from.registers) == 0) _longjmp(to.registers, 1);
  arrive(from);
}

void jump_away(Place& to) {
  leave(nullptr, to);
  _longjmp(to.registers, 1);
}

}  // namespace emulated_card
