// What checkpoints hold of a training, and how a save and a training that goes on keep out of each other's way: all
// that this layer knows of a trainer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "orthant/comm/control_group.h"
#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {

// The tensors of a rank, and what says which other rank holds what.
struct CheckpointedTensors {
  const GraphSpec* graph = nullptr;  // resolved
  Mesh mesh = {};
  std::vector<int> unit_pp_coordinates = {};  // per unit
  ControlGroup ranks = {};
  DType dtype = DType::float32;  // of parameters and optimizer states
  ParameterStore* parameters = nullptr;
  // Each state of the optimizer: its name, and per buffer the range that this rank owns; undefined of a frozen buffer.
  struct OptimizerState {
    std::string name;
    std::vector<at::Tensor> buffers;
  };
  std::vector<OptimizerState> states = {};
};

// Where the training stands.
struct TrainingProgress {
  std::int64_t step = 0;
  std::int64_t updates = 0;     // of the optimizer
  double loss_scale = 0;        // 0: none that changes
  std::int64_t good_steps = 0;  // of the loss scale, in a row
};

class Checkpointed {
 public:
  virtual ~Checkpointed() = default;

  virtual CheckpointedTensors checkpointed() const = 0;
  virtual std::uint64_t seed() const = 0;
  virtual std::int64_t steps_done() const = 0;

  // Both wait for the device.
  virtual TrainingProgress progress() const = 0;
  virtual void set_progress(const TrainingProgress& progress) = 0;

  // Somebody reads what a checkpoint holds until the future is ready: the next update, or load(), waits for it. One at
  // a time; a second takes the place of the first. Local, as is the next.
  virtual void hold_update(std::shared_future<void> until) = 0;
  virtual void await_readers() = 0;  // blocks until nobody reads
};

}  // namespace orthant
