// One run of a unit's program on one microbatch: its values, what is on its way between ranks, and the pass. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <vector>

#include "orthant/nn/pass.h"
#include "orthant/trace/event.h"

namespace orthant::trace {
class Recorder;
}

namespace orthant {

struct Frame {
  nn::Pass pass;
  at::ScalarType compute = at::kFloat;                  // of the unit's parameters
  std::vector<at::Tensor> values;                       // by their numbers in the program; undefined: not there
  std::vector<std::unique_ptr<nn::Exchange>> arriving;  // by the number of what arrives
  trace::Recorder* recorder = nullptr;                  // of single operations; null: nobody asks
  trace::Event recorded = {};                           // what they have in common: unit, stage, microbatch
  std::map<int, std::shared_ptr<void>> opaque;          // values that are no tensors, by their numbers: see ops/module

  at::Tensor& operator[](int value) { return values[static_cast<std::size_t>(value)]; }
  void free(int value) {
    values[static_cast<std::size_t>(value)].reset();
    if (!opaque.empty()) opaque.erase(value);
  }
  // Undefined for an absent value.
  at::Tensor get(int value) const { return value < 0 ? at::Tensor() : values[static_cast<std::size_t>(value)]; }
};

}  // namespace orthant
