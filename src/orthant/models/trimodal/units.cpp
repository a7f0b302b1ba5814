#include "orthant/models/trimodal/units.h"

#include <ATen/ATen.h>

#include "orthant/models/bert/units.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/norm.h"

namespace orthant::trimodal {
namespace {

constexpr double kTabularEps = 1e-5;

// numbers [rows, columns] -> features [rows, width].
class Tabular : public Unit {
 public:
  explicit Tabular(const UnitParameters& p)
      : norm_(p["norm.weight"]), norm_bias_(p["norm.bias"]), weight_(p["linear.weight"]), bias_(p["linear.bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto numbers = inputs[0].to(weight_.value.scalar_type());
    return {nn::linear(nn::layer_norm(numbers, norm_, norm_bias_, kTabularEps, pass), weight_, &bias_, pass).relu()};
  }

 private:
  nn::Parameter& norm_;
  nn::Parameter& norm_bias_;
  nn::Parameter& weight_;
  nn::Parameter& bias_;
};

// The parts' vectors, side by side -> logits [rows, labels].
class Fusion : public Unit {
 public:
  Fusion(const TrimodalConfig& config, const UnitParameters& p)
      : dropout_(config.fusion.dropout),
        hidden_(p["hidden.weight"]),
        hidden_bias_(p["hidden.bias"]),
        output_(p["output.weight"]),
        output_bias_(p["output.bias"]) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    const auto wide = nn::linear(at::cat(inputs, 1), hidden_, &hidden_bias_, pass).relu();
    return {nn::linear(nn::dropout(wide, dropout_, "fusion.dropout", pass), output_, &output_bias_, pass)};
  }

 private:
  double dropout_;
  nn::Parameter& hidden_;
  nn::Parameter& hidden_bias_;
  nn::Parameter& output_;
  nn::Parameter& output_bias_;
};

}  // namespace

std::unique_ptr<Unit> make_unit(const TrimodalConfig& config, const UnitParameters& parameters, Tables& tables) {
  const auto& spec = parameters.spec();
  if (spec.kind == "trimodal.tabular") return std::make_unique<Tabular>(parameters);
  if (spec.kind == "trimodal.fusion") return std::make_unique<Fusion>(config, parameters);
  return bert::make_unit(spec.name.starts_with("secondary.") ? config.secondary : config.primary, parameters, tables);
}

}  // namespace orthant::trimodal
