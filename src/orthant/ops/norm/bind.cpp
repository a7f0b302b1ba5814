// RMSNorm and LayerNorm, also with the dropout and sum in front of them.
#include <ATen/ATen.h>

#include <optional>

#include "orthant/nn/binding.h"
#include "orthant/ops/dropout/site_draw.h"
#include "orthant/ops/norm/norm_pass.h"

namespace orthant {
namespace {

nn::NormWeights weights_of(const Binding& b, nn::Norm kind) {
  return {kind, b.attributes().number("eps"), b.parameter(0), b.parameter(1)};
}

Step bind_norm(const Binding& b, nn::Norm kind) {
  return [x = b.in(0), y = b.out(0), statistics = b.out(1), weights = weights_of(b, kind)](Frame& frame) {
    nn::Normalized out = nn::norm_forward(frame[x], weights);
    frame[y] = std::move(out.y);
    if (statistics >= 0) frame[statistics] = std::move(out.statistics);
  };
}

// in x, residual; out sum, normed, statistics.
Step bind_dropout_add_norm(const Binding& b) {
  return [x = b.in(0), residual = b.in(1), sum = b.out(0), y = b.out(1), statistics = b.out(2),
          weights = weights_of(b, nn::Norm::layer), draw = SiteDraw(b, b.in(0))](Frame& frame) {
    const auto grid = draw.grid(frame[x], frame.pass);
    nn::SumAndNorm result = nn::sum_norm_forward(frame[x], frame[residual], weights, grid ? &*grid : nullptr);
    frame[sum] = std::move(result.sum);
    frame[y] = std::move(result.out.y);
    if (statistics >= 0) frame[statistics] = std::move(result.out.statistics);
  };
}

// in gy, what was normalised, its statistics, what is added to the gradient or none; out that gradient and, behind a
// dropout, what it leaves of it.
Step bind_norm_back(const Binding& b, nn::Norm kind) {
  const nn::NormParts parts = {b.out(0) >= 0, b.attributes().flag("weights")};
  return [gy = b.in(0), x = b.in(1), statistics = b.in(2), added = b.in(3), gx = b.out(0), dropped = b.out(1), parts,
          kind, weight = b.parameter(0), bias = b.parameter(1), draw = SiteDraw(b, b.out(0))](Frame& frame) {
    const auto grid = dropped < 0 ? std::nullopt : draw.grid(frame[gy], frame.pass);
    const nn::NormInput input = {frame[x], frame[statistics], parts.input ? weight->value : at::Tensor()};
    nn::NormGradients out = nn::norm_backward(kind, frame[gy], input, parts, grid ? &*grid : nullptr, frame.get(added));
    if (parts.weights) nn::add_weight_gradients(*weight, bias, out);
    if (gx >= 0) frame[gx] = out.x;
    if (dropped >= 0) frame[dropped] = out.dropped.defined() ? std::move(out.dropped) : out.x;
  };
}

}  // namespace

std::vector<NamedBinder> norm_binders() {
  return {{"rms_norm", [](const Binding& b) { return bind_norm(b, nn::Norm::rms); }},
          {"layer_norm", [](const Binding& b) { return bind_norm(b, nn::Norm::layer); }},
          {"dropout_add_norm", bind_dropout_add_norm},
          {"rms_norm_back", [](const Binding& b) { return bind_norm_back(b, nn::Norm::rms); }},
          {"layer_norm_back", [](const Binding& b) { return bind_norm_back(b, nn::Norm::layer); }}};
}

}  // namespace orthant
