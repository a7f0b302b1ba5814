// The last product of a language model: hidden states to logits over the vocabulary, which tp may cut.
#pragma once

#include "orthant/nn/linear.h"
#include "orthant/nn/token_values.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {

class Logits {
 public:
  // Of the unit that writes the value "logits". `bias` may be null. Keeps references to both.
  Logits(const UnitParameters& p, nn::Parameter& weight, nn::Parameter* bias)
      : weight_(weight),
        bias_(bias),
        classes_(p.graph().value("logits").shape.back()),
        cut_(p.graph().value("logits").tp.has_value()) {}

  // x [rows, sequence, hidden] or own tokens -> [rows, sequence, vocabulary], or this rank's part of the vocabulary
  // where the loss takes it so. Collective over tp where the weight is cut.
  at::Tensor forward(const at::Tensor& x, nn::Pass& pass) {
    const auto own = nn::linear(x, weight_, bias_, pass);
    return weight_.cut.column() && !cut_ ? nn::whole_channels(own, classes_, pass) : own;
  }

 private:
  nn::Parameter& weight_;
  nn::Parameter* bias_;
  std::int64_t classes_;
  bool cut_;
};

}  // namespace orthant
