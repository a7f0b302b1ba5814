// The numbers of a step while they are still on their way from the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace orthant {

// Copies are of one step. get() waits for its numbers.
class PendingStep {
 public:
  PendingStep() = default;
  // Float64: loss, norm, whether a smaller loss scale may mend it, ranks that want to stop, ranks that still save,
  // ranks by whose clock a save is due, peak memory of every one of `ranks`, the time that each was busy, the sum of
  // auxiliary losses, slots that chose each expert of each layer, and those that it dropped. `check` throws when what
  // came back means nothing: exchanges of the step were broken off, so that the device did not wait for a peer that is
  // gone.
  PendingStep(const at::Tensor& numbers, int ranks, std::function<void()> check = {});

  // Alike on every rank.
  struct Numbers {
    double loss = 0;
    double grad_norm = 0;                // before clipping
    bool skipped = false;                // gradients overflowed: no update, and the next step has a smaller loss scale
    bool stop = false;                   // some rank was asked to stop
    bool saving = false;                 // some rank still wrote a checkpoint when the step began
    bool save_due = false;               // by some rank's clock it was time for a checkpoint
    std::int64_t peak_memory_bytes = 0;  // of the rank with the most
    std::vector<double> busy_seconds = {};  // per rank, of the step before
    double auxiliary_loss = 0;              // part of the loss
    std::vector<double> expert_loads = {};  // layer after layer: slots of each expert, then those dropped

    // No update was made, and a smaller loss scale would not have helped.
    bool bad() const;
  };
  Numbers get() const;

  // For the trainer, which looks at a step before its caller does: was_read() is true once some copy's get() was
  // called.
  Numbers peek() const;
  bool was_read() const { return state_ && state_->read; }

 private:
  struct State {
    at::Tensor on_host;
    int ranks = 1;
    std::shared_ptr<void> arrived;  // a CUDA event
    std::function<void()> check;
    bool read = false;
  };
  std::shared_ptr<State> state_;
};

}  // namespace orthant
