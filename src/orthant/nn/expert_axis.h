// The ranks that hold different experts, as operations see them. A pass with a null axis holds all experts. Implemented
// over a group of ranks in parallel/expert.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/nn/exchange.h"

namespace orthant::nn {

class ExpertAxis {
 public:
  ExpertAxis(int degree, int coordinate) : degree_(degree), coordinate_(coordinate) {}
  virtual ~ExpertAxis() = default;

  int degree() const { return degree_; }
  int coordinate() const { return coordinate_; }
  // Experts of a rank, of `count` in all.
  Range experts(std::int64_t count, int coordinate) const { return balanced_range(count, degree_, coordinate); }
  Range experts(std::int64_t count) const { return experts(count, coordinate_); }

  // Rows [0, input_rows[0]) of the input go to rank 0, the next input_rows[1] to rank 1, and so on; the output is laid
  // out likewise. Both are contiguous. Collective over the axis.
  virtual std::unique_ptr<Exchange> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                               const std::vector<std::int64_t>& output_rows,
                                               const std::vector<std::int64_t>& input_rows) = 0;

 private:
  int degree_;
  int coordinate_;
};

}  // namespace orthant::nn
