// The random draws of an operation's dropout site, for matrices as programs have them. Internal to this layer.
#pragma once

#include <optional>

#include "orthant/nn/binding.h"
#include "orthant/ops/dropout/dropout.h"

namespace orthant {

class SiteDraw {
 public:
  // Of the operation's site and probability, if it has one, over a value that lies as `like` does.
  SiteDraw(const Binding& b, int like);

  // Of a matrix [rows, channels]; nothing where nothing is dropped.
  std::optional<nn::DropoutGrid> grid(std::int64_t rows, std::int64_t channels, const nn::Pass& pass) const;
  std::optional<nn::DropoutGrid> grid(const at::Tensor& x, const nn::Pass& pass) const {
    return grid(x.size(0), x.size(1), pass);
  }

 private:
  double p_ = 0;
  std::string site_;
  bool per_token_ = false;  // all tokens of the microbatch: [rows * sequence, channels]
  bool of_tokens_ = false;  // these, or a rank's own
  std::int64_t first_channel_ = 0;
};

// The first global index of what a rank has of a dim of so many.
std::int64_t first_of(const Dim& dim, const nn::TensorAxis* axis);

}  // namespace orthant
