// Memory over sizes alone: bytes that are held, and the most of them at one time. Internal to this layer.
#pragma once

#include <memory>

namespace orthant {

// Bytes that count as allocated while some Held refers to them.
using Held = std::shared_ptr<void>;

class CountedMemory {
 public:
  Held take(double bytes) {
    now_ += bytes;
    if (now_ > peak_) peak_ = now_;
    return {this, [this, bytes](void*) { now_ -= bytes; }};
  }
  void for_a_while(double bytes) { take(bytes); }
  double now() const { return now_; }
  double peak() const { return peak_; }
  void reset_peak() { peak_ = now_; }

 private:
  double now_ = 0;
  double peak_ = 0;
};

}  // namespace orthant
