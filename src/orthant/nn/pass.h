// One run of a unit on one microbatch, and the parameters it uses: what the functions of this layer need besides
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "orthant/base/random.h"
#include "orthant/graph/spec.h"
#include "orthant/nn/context_axis.h"
#include "orthant/nn/expert_axis.h"
#include "orthant/nn/key_cache.h"
#include "orthant/nn/tensor_axis.h"
#include "orthant/nn/token_rows.h"

namespace orthant::nn {

class DeviceStreams;
class ProductPlans;

// What this rank holds of a parameter over the tensor axis.
struct TensorCut {
  // Which dim is cut; -1: none, the parameter is whole. Of a weight [out, in] dim 0 makes a column product, whose
  // output is cut, and dim 1 a row product, whose output is a sum over the axis. A table is cut along its entries.
  int dim = -1;
  std::int64_t first = 0;  // global index of the first held one along that dim; of the first block
};

// A parameter as the functions see it: views of a unit's flat buffers. Whoever owns the buffers owns this object, and
// it outlives every Pass that uses it.
struct Parameter {
  at::Tensor value;     // a leaf of autograd that requires a gradient when trainable
  at::Tensor gradient;  // same shape, the dtype gradients are accumulated in; undefined when frozen
  bool fresh = true;    // nothing was added in this step yet: the next addition overwrites, and reads nothing
  TensorCut cut = {};
  Subject subject = {};  // names of the unit that owns it and of what it covers

  bool trainable() const { return gradient.defined(); }
};

struct Pass {
  std::string_view unit = {};  // its name
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_row = 0;  // of this microbatch's rows, counted in the global batch
  bool training = true;        // false: no dropout
  bool repeatable = true;      // every sum has one order, whatever it costs on a device
  bool owns_inputs = false;    // nobody reads the unit's input values after it: it may overwrite them

  ProductPlans* products = nullptr;  // by which products are computed; null: libtorch's choice
  DeviceStreams* streams = nullptr;  // where a device finds the streams of dropout sites; null: they are arguments

  TensorAxis* tensor = nullptr;    // null: this rank holds whole layers
  ContextAxis* context = nullptr;  // null: this rank has whole rows
  ExpertAxis* experts = nullptr;   // null: this rank has all experts
  // Where slots that choose each expert of the unit are added up, and behind them those that were dropped: whole
  // numbers [experts + 1]; null: nobody asks.
  const at::Tensor* expert_loads = nullptr;
  // Of the unit's tokens in this microbatch, all tp ranks together; 0 when it has none. With a context axis `sequence`
  // counts the tokens of a row that this coordinate has, which are those of `positions`.
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  OwnPositions positions = {};
  const TokenRows* token_rows = nullptr;  // of unpadded rows, which are one row of `sequence` tokens; null: padded

  // Of a generation: the sequences whose next tokens the row has, and the unit's keys and values; null elsewhere.
  const CachedStep* cached = nullptr;
  KeyCache* keys = nullptr;

  // Whether each tp rank holds a part of the tokens between products. Their values are then [own tokens, channels].
  bool cuts_tokens() const { return tensor != nullptr && tensor->sequence_parallel() && sequence > 0; }
  std::int64_t whole_sequence() const { return context == nullptr ? sequence : positions.all; }
  // Positions that a table must have.
  std::int64_t most_positions() const { return cached == nullptr ? whole_sequence() : cached->most_positions; }
  std::int64_t num_tokens() const { return rows * sequence; }
  Range own_tokens() const { return cuts_tokens() ? tensor->part(num_tokens()) : Range{0, num_tokens()}; }

  // Of what belongs to the unit and to none of its parameters.
  Subject subject() const { return {&unit, unit.empty() ? 0U : 1U}; }

  // Random bits of a dropout site ("layers.3.attention.dropout"). The element index is the caller's: built from the
  // sample's row in the global batch and global positions, never from a place in a local or padded tensor.
  RandomStream dropout_stream(std::string_view site) const {
    return RandomStream(seed, site, {static_cast<std::uint64_t>(step)});
  }
};

// parameter.gradient = (fresh ? 0 : gradient) + addend; clears fresh.
void add_gradient(Parameter& parameter, const at::Tensor& addend);

}  // namespace orthant::nn
