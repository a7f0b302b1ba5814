#include "orthant/trace/event.h"

#include <chrono>

namespace orthant::trace {

const char* name_of(EventKind kind) {
  static constexpr const char* kNames[kNumEventKinds] = {"phase", "action", "operation", "exchange", "wait"};
  const auto number = static_cast<int>(kind);
  return number < kNumEventKinds ? kNames[number] : "unknown";
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace orthant::trace
