// The factor that losses are multiplied by before their backward, so that small gradients do not vanish in float16, and
// that gradients are divided by before the update. When dynamic it falls after a step whose gradients overflowed, which
// is left out, and grows again after many good ones. It lives on the device: nothing here waits for it but state().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "orthant/parallel/data/precision.h"

namespace orthant {

struct LossScaleOptions {
  bool dynamic = false;
  double initial = 1;            // the scale itself when it is not dynamic
  double growth = 2;             // after `interval` good steps in a row
  double backoff = 0.5;          // after a step that overflowed
  std::int64_t interval = 2000;  // good steps in a row
  friend bool operator==(const LossScaleOptions&, const LossScaleOptions&) = default;
};

inline constexpr double kMostLossScale = 1 << 24;  // growth ends here

// Dynamic when something is float16, 1 otherwise.
LossScaleOptions default_loss_scale(const Precision& precision);

class LossScale {
 public:
  LossScale(const LossScaleOptions& options, at::Device device);

  // A float64 scalar on the device; undefined when it is 1 for ever.
  const at::Tensor& value() const { return value_; }
  bool dynamic() const { return options_.dynamic; }

  // After a step, of which `finite`, a bool scalar on the device, says whether it was good. Local; the same on every
  // rank when `finite` is.
  void update(const at::Tensor& finite);

  // Whether a smaller scale may mend the step just made: its loss was finite, its norm was not, and the scale is
  // dynamic and above 1. All are float64 [1] on the device; 1 means yes. Before update().
  at::Tensor may_mend(const at::Tensor& loss, const at::Tensor& norm) const;

  // For checkpoints. Reading it waits for the device.
  struct State {
    double value = 1;
    std::int64_t good_steps = 0;  // in a row
    friend bool operator==(const State&, const State&) = default;
  };
  State state() const;
  // No effect on a scale that is not dynamic: the configuration says what it is.
  void set_state(const State& state);

 private:
  LossScaleOptions options_;
  at::Tensor value_;
  at::Tensor good_steps_;  // float64 scalar
};

}  // namespace orthant
