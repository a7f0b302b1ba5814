// The last product of a language model: hidden states to logits over the vocabulary, which tp may cut; or, of a unit
// that is head and loss, to the loss over them.
#pragma once

#include "orthant/nn/linear.h"
#include "orthant/nn/linear_cross_entropy.h"
#include "orthant/nn/token_values.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/unit.h"

namespace orthant {

class Logits {
 public:
  // Of the unit that writes the value "logits", or that is the loss, too. `bias` may be null. Keeps references to both.
  Logits(const UnitParameters& p, nn::Parameter& weight, nn::Parameter* bias)
      : weight_(weight), bias_(bias), chunks_(p.spec().logits) {
    classes_ = chunks_ ? chunks_->classes : p.graph().value("logits").shape.back();
    if (chunks_) names_ = {p.spec().name, p.spec().logits->loss};
    cut_ = !chunks_ && p.graph().value("logits").tp.has_value();
  }

  // x [rows, sequence, hidden] or own tokens -> what the unit writes: [rows, sequence, vocabulary], this rank's part of
  // the vocabulary where the loss takes it so, or the loss. `inputs` are the unit's, of a loss labels behind the first.
  // Collective over tp where the weight is cut.
  Tensors forward(const at::Tensor& x, const Tensors& inputs, nn::Pass& pass) {
    if (chunks_) return {loss(x, inputs.at(1), pass)};
    const auto own = nn::linear(x, weight_, bias_, pass);
    return {weight_.cut.column() && !cut_ ? nn::whole_channels(own, classes_, pass) : own};
  }

 private:
  at::Tensor loss(const at::Tensor& x, const at::Tensor& labels, nn::Pass& pass) {
    nn::LinearCrossEntropyOptions options;
    options.chunk_rows = chunks_->rows;
    options.subject = names_;
    if (pass.tensor != nullptr) options.loss.classes = classes_;
    return nn::linear_cross_entropy(x, weight_, bias_, labels, options, pass);
  }

  nn::Parameter& weight_;
  nn::Parameter* bias_;
  std::optional<ChunkedLogits> chunks_;
  std::vector<std::string_view> names_;  // of the unit and its loss; the graph has the texts
  std::int64_t classes_ = 0;
  bool cut_ = false;
};

// Whether a kind is the head of that model, alone or with the loss.
inline bool is_head(std::string_view kind, std::string_view model) {
  if (!kind.starts_with(model)) return false;
  const auto part = kind.substr(model.size());
  return part == ".head" || part == ".head_loss";
}

}  // namespace orthant
