#include "orthant/models/encoder_lm/units.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>

#include "orthant/models/logits.h"
#include "orthant/models/post_norm_layer.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/linear.h"

namespace orthant::encoder_lm {
namespace {

// [sequence, width]: sines in even channels, cosines in odd ones, waves from 2 pi to 20000 pi positions long.
at::Tensor sine_positions(std::int64_t sequence, std::int64_t width, const at::TensorOptions& options) {
  const auto doubles = at::dtype(at::kDouble);
  const auto rates = at::arange(0, width, 2, doubles).mul_(-std::log(10000.0) / static_cast<double>(width)).exp_();
  const auto angles = at::outer(at::arange(sequence, doubles), rates);
  at::Tensor table = at::empty({sequence, width}, doubles);
  table.slice(1, 0, width, 2).copy_(angles.sin());
  // An odd width has a sine more than cosines.
  table.slice(1, 1, width, 2).copy_(angles.narrow(1, 0, width / 2).cos());
  return table.to(options);
}

// Rows of a table [sequence, width] for the tokens of this rank, where the pass cuts them; else all rows.
at::Tensor of_own_tokens(const at::Tensor& table, const nn::Pass& pass) {
  if (!pass.cuts_tokens()) return table;
  const Range own = pass.own_tokens();
  const auto places = at::arange(own.begin, own.end, at::TensorOptions().dtype(at::kLong).device(table.device()));
  return table.index_select(0, places.remainder(pass.sequence));
}

// ids [rows, sequence] -> hidden [rows, sequence, hidden].
class Embed : public Unit {
 public:
  Embed(const EncoderLmConfig& config, const UnitParameters& p, Tables& tables)
      : dropout_(config.dropout), entries_(config.vocab_size), tables_(tables), table_(p["weight"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto words = nn::embedding({{inputs[0], &table_, entries_}}, pass);
    const auto width = words.size(-1);
    const auto positions = tables_.rows(fmt::format("sines {}", width), pass.sequence, [&](std::int64_t rows) {
      at::NoGradGuard no_grad;
      return sine_positions(rows, width, words.options().requires_grad(false));
    });
    const auto sum = words * std::sqrt(static_cast<double>(width)) + of_own_tokens(positions, pass);
    return {nn::dropout(sum, dropout_, "embed.dropout", pass)};
  }

 private:
  double dropout_;
  std::int64_t entries_;
  Tables& tables_;
  nn::Parameter& table_;
};

// hidden -> logits [rows, sequence, vocabulary], or the loss.
class Head : public Unit {
 public:
  explicit Head(const UnitParameters& p) : logits_(p, p["weight"], &p["bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override { return logits_.forward(inputs[0], inputs, pass); }

 private:
  Logits logits_;
};

PostNormLayer layer_of(const EncoderLmConfig& config) {
  PostNormLayer layer;
  layer.head_size = config.head_size();
  layer.causal = true;
  layer.eps = config.layer_norm_eps;
  layer.activation = nn::ActivationKind::relu;
  layer.attention_dropout = config.dropout;
  layer.activation_dropout = config.dropout;
  layer.dropout = config.dropout;
  return layer;
}

}  // namespace

std::unique_ptr<Unit> make_unit(const EncoderLmConfig& config, const UnitParameters& parameters, Tables& tables) {
  const auto& kind = parameters.spec().kind;
  if (kind == "encoder_lm.embed") return std::make_unique<Embed>(config, parameters, tables);
  if (kind == "encoder_lm.layer") return make_post_norm_layer(layer_of(config), parameters);
  if (is_head(kind, "encoder_lm")) return std::make_unique<Head>(parameters);
  return nullptr;
}

}  // namespace orthant::encoder_lm
