// A rank that runs out of memory, as its user is told: where it was, what it had against what the planner had
// predicted, what holds most, and what to set.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/train/run_config.h"

namespace orthant {

class Trainer;

struct MemoryHolder {
  std::string what;
  std::int64_t bytes = 0;
};

// Of one rank, at the moment it ran out.
struct MemoryInUse {
  std::int64_t bytes = 0;             // of all tensors on its device
  std::int64_t asked_bytes = 0;       // of the tensor that got none; 0: not known
  std::vector<MemoryHolder> holders;  // the largest first; none before there is a trainer
};

// After is_out_of_memory(error), while the trainer lives; null: there is none yet. Local.
MemoryInUse memory_in_use(const Trainer* trainer, at::Device device);

// "out of memory at dp=1 in step 3, F layers.2 m0: 812 MiB in use ...", with remedies in the order in which they help
// against the largest holder. `action`: what the rank did last; empty: not known. Local.
DataError out_of_memory(const RunConfig& config, int rank, const std::string& action, const MemoryInUse& in_use);

}  // namespace orthant
