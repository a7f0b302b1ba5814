// The tables of a rotary operation, for sequences of any length. Internal to this layer.
#pragma once

#include "orthant/models/rope.h"
#include "orthant/nn/binding.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant {

class RotaryTables {
 public:
  explicit RotaryTables(const Binding& b);

  // For the positions that the pass has of each row, or all of a row; kept for the next call.
  const nn::RotaryTable& get(const nn::Pass& pass, const at::TensorOptions& options);
  const nn::RotaryTable& whole(const nn::Pass& pass, const at::TensorOptions& options);

 private:
  nn::RotaryTable make(std::int64_t positions, const at::TensorOptions& options) const;
  at::Tensor inverse_frequencies(const std::vector<double>& exact, const at::TensorOptions& options) const;

  Tables* tables_;
  double theta_;
  std::int64_t head_size_;
  std::int64_t max_positions_;
  RopeScaling scaling_;
  std::int64_t sequence_ = -1;  // of whole rows, that the tables are for
  nn::RotaryTable whole_;
  nn::RotaryTable own_;
};

}  // namespace orthant
