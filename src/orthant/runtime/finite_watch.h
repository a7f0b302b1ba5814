// Notes which of a step's tensors hold a value that is not finite, and waits for nothing: a plain loop on the CPU, one
// small kernel on a device, whose result is read only when somebody asks. Results of two steps are kept, so that those
// of one can be read while the next is under way.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "orthant/base/ranges.h"

namespace orthant {

// Whether no element is NaN or infinite. Of a CPU tensor; integers are finite.
bool all_finite(const at::Tensor& tensor);

class FiniteWatch {
 public:
  FiniteWatch(std::int64_t slots, at::Device device);

  // A new step begins: nothing was seen in it. What was seen in the one before stays readable until the next begin().
  // The second: the part of it that a device does.
  void begin();
  void begin_on_device();

  // A slot is used once in a step on a device. Where no kernel serves the tensor a sum stands for it: it is not finite
  // when an element is not, or when it overflows.
  void look(std::int64_t slot, const at::Tensor& tensor);

  // Whether a CPU tensor of this step that is not finite was seen in that slot.
  bool is_bad(std::int64_t slot) const { return now_.flags[static_cast<std::size_t>(slot)]; }

  // 0 when all that was seen in those slots in this step is finite, NaN otherwise: float64 [1] on the device.
  at::Tensor verdict(Range slots) const;

  // Per slot, whether it saw something that is not finite. `steps_ago` is 0 or 1. Waits for the device.
  std::vector<bool> bad(int steps_ago) const;

 private:
  struct Seen {
    std::vector<bool> flags;  // of CPU tensors
    at::Tensor sums;          // float32 [slots] on a device; undefined on the CPU
    at::Tensor wide_sums;     // of float64 tensors
  };

  at::Device device_;
  Seen now_;
  Seen before_;
};

}  // namespace orthant
