#include "orthant/cli/compute_bench.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>

#include "orthant/ops/activation/activation.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/dropout/dropout.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/ops/norm/norm_pass.h"
#include "orthant/plan/estimate/unit_time.h"
#include "orthant/plan/stacks/stack.h"
#include "orthant/train/optimizer.h"
#include "orthant/train/optimizer_kernels.h"

namespace orthant::cli {
namespace {

// Channels of the linears: products of 1e5 to 1e10 FLOPs on a core, up to 1e12 on a GPU.
const std::vector<std::int64_t> kCoreWidths = {32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280};
const std::vector<std::int64_t> kGpuWidths = {64, 128, 256, 512, 1024, 2048, 4096, 6144};

// Beyond every cache; a GPU's must not hold a part that counts.
constexpr std::int64_t kCopiedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kGpuCopiedBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMostLayers = 32;   // that take turns
constexpr std::int64_t kDroppedHead = 64;  // channels of the heads whose probabilities are dropped
// Parameters, likewise.
constexpr std::int64_t kUpdated = std::int64_t{8} << 20;
constexpr std::int64_t kGpuUpdated = std::int64_t{64} << 20;

double as_double(std::int64_t size) {
  return static_cast<double>(size);
}

using SharedParameter = std::shared_ptr<nn::Parameter>;

SharedParameter parameter(const at::Tensor& value) {
  auto made = std::make_shared<nn::Parameter>();
  made->value = value;
  made->gradient = at::zeros(value.sizes(), value.options().dtype(at::kFloat));
  return made;
}

// Forward and backward.
void run_norm(const nn::NormWeights& norm, const at::Tensor& x, const at::Tensor& gy) {
  const auto out = nn::norm_forward(x, norm);
  const auto gradients = nn::norm_backward(norm.kind, gy, {x, out.statistics, norm.weight->value}, {}, nullptr);
  nn::add_weight_gradients(*norm.weight, norm.bias, gradients);
}

}  // namespace

ComputeBench::ComputeBench(RankClock& clock, at::ScalarType dtype)
    : clock_(clock), options_(at::TensorOptions().dtype(dtype).device(clock.device())) {
  for (const auto width : on_host() ? kCoreWidths : kGpuWidths) add_linear(width);
  attention_ = on_host() ? attention(usual_attention(), 2, 256) : attention(usual_attention(), 4, 4096);
  copy_ = copy();
  sweeps_ = on_host() ? host_sweeps() : device_sweeps();
  kernels_ = on_host() ? host_kernels() : device_kernels();
  update_ = on_host() ? host_update() : device_update();
  if (on_host()) {
    draws_ = draws();
  } else {
    dropped_attention_ = attention(dropped_attention(), 32, 512);
  }
}

at::Tensor ComputeBench::values(at::IntArrayRef shape) const {
  return at::randn(shape, options_);
}

// On twice as many tokens as it has channels. Layers take turns, as in a step: their matrices come from memory.
void ComputeBench::add_linear(std::int64_t width) {
  struct Layers {
    std::vector<SharedParameter> weights;
    std::vector<at::Tensor> inputs;
    std::size_t next = 0;
    std::size_t turn() { return next++ % inputs.size(); }
  };
  const auto layers = std::make_shared<Layers>();
  const std::int64_t bytes = 4 * width * width * options_.dtype().itemsize();  // of a weight, its gradient and an input
  for (std::int64_t i = 0; i < std::clamp<std::int64_t>(kCopiedBytes / bytes, 1, kMostLayers); ++i) {
    layers->weights.push_back(parameter(values({width, width})));
    layers->inputs.push_back(values({2 * width, width}));
  }
  Linear linear;
  linear.flops = 4 * as_double(width) * as_double(width) * as_double(width);
  linear.forward = clock_.add([=] {
    const nn::BelowAutograd below;
    const auto i = layers->turn();
    nn::project(layers->inputs[i], layers->weights[i]->value, {}, {});
  });
  linear.inputs = clock_.add([=] {
    const nn::BelowAutograd below;
    const auto i = layers->turn();
    nn::project_back(layers->inputs[i], layers->weights[i]->value);
  });
  linear.weights = clock_.add([=] {
    const nn::BelowAutograd below;
    const auto i = layers->turn();
    const auto& x = layers->inputs[i];
    nn::add_product_gradient(*layers->weights[i], x, x, nullptr);
  });
  linears_.push_back(linear);
}

// On a GPU large enough to fill it.
nn::AttentionOptions ComputeBench::usual_attention() const {
  nn::AttentionOptions options;
  options.heads = options.kv_heads = on_host() ? 8 : 16;
  options.head_size = on_host() ? 64 : static_cast<std::int64_t>(kUsualHead);
  options.causal = true;
  return options;
}

// Of a BERT.
nn::AttentionOptions ComputeBench::dropped_attention() const {
  nn::AttentionOptions options;
  options.heads = options.kv_heads = 12;
  options.head_size = kDroppedHead;
  options.dropout = 0.1;
  options.site = "calibration";
  return options;
}

// FLOPs of forward and backward, counted as unit_seconds() counts them.
ComputeBench::Amount ComputeBench::attention(const nn::AttentionOptions& options, std::int64_t rows,
                                             std::int64_t sequence) {
  const std::int64_t channels = options.heads * options.head_size;
  const auto qkv = values({rows, sequence, 3 * channels});
  const auto gradient = values({rows, sequence, channels});
  nn::Pass pass;
  pass.repeatable = on_host();  // as a training has it by default
  const auto setup = nn::heads_setup(qkv, options, pass);
  const auto call = [=] {
    const nn::BelowAutograd below;
    const auto output = nn::heads_forward(qkv, setup, /*rotate=*/false);
    nn::heads_backward(qkv, output, gradient, setup);
  };
  const double forward = (options.causal ? 2 : 4) * as_double(rows * channels * sequence * sequence);
  return {(1 + kFusedBackward) * forward, clock_.add(call)};
}

ComputeBench::Amount ComputeBench::copy() {
  const std::int64_t bytes = on_host() ? kCopiedBytes : kGpuCopiedBytes;
  const auto from = at::zeros({bytes}, options_.dtype(at::kByte));
  const auto to = at::empty_like(from);
  return {2 * as_double(bytes), clock_.add([=] { to.copy_(from); })};
}

// RMSNorm, LayerNorm with dropout and residual in front, and SwiGLU, forward and backward, by the kernels of a device;
// bytes of every tensor that they read or write and of what they draw, as a step is priced.
ComputeBench::Amount ComputeBench::device_sweeps() {
  const std::int64_t tokens = 8192, hidden = 4096, inner = 4 * hidden;
  const auto weight = parameter(values({hidden}));
  const auto bias = parameter(values({hidden}));
  const auto x = values({tokens, hidden});
  const auto residual = values({tokens, hidden});
  const auto gradient = values({tokens, hidden});
  const auto grid = nn::dropout_grid(nn::Pass(), "calibration", 0.1, {tokens, hidden});
  const auto gate_up = values({tokens, 2 * inner});
  const auto inner_gradient = values({tokens, inner});
  const auto call = [=] {
    const nn::BelowAutograd below;
    run_norm({nn::Norm::rms, 1e-5, weight.get(), nullptr}, x, gradient);
    const nn::NormWeights norm = {nn::Norm::layer, 1e-5, weight.get(), bias.get()};
    const auto summed = nn::sum_norm_forward(x, residual, norm, &grid);
    const nn::NormInput kept = {summed.sum, summed.out.statistics, weight->value};
    const auto gradients = nn::norm_backward(nn::Norm::layer, gradient, kept, {}, &grid);
    nn::add_weight_gradients(*weight, bias.get(), gradients);
    nn::activate(nn::ActivationKind::swiglu, gate_up);
    nn::activation_gradient(nn::ActivationKind::swiglu, gate_up, inner_gradient, /*wants_activation=*/true);
  };
  const std::int64_t elements = tokens * ((2 + 3 + 4 + 4) * hidden + (3 + 6) * inner);
  const double drawn = 2 * as_double(tokens * hidden);
  return {as_double(elements * x.element_size()) + drawn * kDrawnMoves, clock_.add(call)};
}

// The same of a host, whose other norms and activations have kernels, too.
ComputeBench::Amount ComputeBench::host_sweeps() {
  const std::int64_t tokens = 512, hidden = 512, inner = 4 * hidden;
  const auto weight = parameter(values({hidden}));
  const auto bias = parameter(values({hidden}));
  const auto x = values({tokens, hidden});
  const auto gradient = values({tokens, hidden});
  const auto wide = values({tokens, inner});
  const auto wide_gradient = values({tokens, inner});
  const auto call = [=] {
    const nn::BelowAutograd below;
    run_norm({nn::Norm::layer, 1e-5, weight.get(), bias.get()}, x, gradient);
    run_norm({nn::Norm::rms, 1e-5, weight.get(), nullptr}, x, gradient);
    nn::activate(nn::ActivationKind::gelu, wide);
    nn::activation_gradient(nn::ActivationKind::gelu, wide, wide_gradient, /*wants_activation=*/true);
  };
  const std::int64_t elements = tokens * (2 * (2 + 3) * hidden + (2 + 4) * inner);
  return {as_double(elements * x.element_size()), clock_.add(call)};
}

// A norm and a linear too small to matter: two kernels forward and four backward.
ComputeBench::Amount ComputeBench::host_kernels() {
  const auto weight = parameter(values({16, 16}));
  const auto scale = parameter(values({16}));
  const auto x = values({4, 16});
  const auto gradient = values({4, 16});
  const auto call = [=] {
    const nn::BelowAutograd below;
    const nn::NormWeights norm = {nn::Norm::rms, 1e-5, scale.get(), nullptr};
    const auto normed = nn::norm_forward(x, norm);
    nn::project(normed.y, weight->value, {}, {});
    const auto back = nn::project_back(gradient, weight->value);
    nn::add_product_gradient(*weight, gradient, normed.y, nullptr);
    const auto gradients = nn::norm_backward(norm.kind, back, {x, normed.statistics, scale->value}, {}, nullptr);
    nn::add_column_sums(*scale, gradients.weight);
  };
  return {6, clock_.add(call)};
}

// Starts of kernels one after another.
ComputeBench::Amount ComputeBench::device_kernels() {
  const auto weight = values({16, 16});
  const auto x = values({16, 16});
  const auto gate_up = values({16, 32});
  const auto call = [=] {
    const nn::BelowAutograd below;
    nn::project(x, weight, {}, {});
    nn::activate(nn::ActivationKind::swiglu, gate_up);
  };
  return {2, clock_.add(call)};
}

// Norms of gradients and a step of AdamW, as Optimizer makes them by its kernels: float32, with a copy for products.
ComputeBench::Amount ComputeBench::device_update() {
  struct Update {
    OptimizerOptions options = {};
    UpdatedSegment segment = {};
    std::unique_ptr<OptimizerKernels> kernels = {};
    at::Tensor norm, finite;
  };
  const auto update = std::make_shared<Update>();
  const auto wide = options_.dtype(at::kFloat);
  const auto zeros = [&] { return at::zeros({kGpuUpdated}, wide); };
  update->segment = {.parameters = MasterValues(at::ones({kGpuUpdated}, wide)),
                     .gradient = zeros(),
                     .states = {zeros(), zeros()},
                     .copy = at::empty({kGpuUpdated}, options_)};
  update->options.clip = 1;
  update->norm = at::zeros({}, options_.dtype(at::kDouble));
  update->finite = at::ones({}, options_.dtype(at::kBool));
  update->kernels = std::make_unique<OptimizerKernels>(update->options, std::vector<UpdatedSegment>{update->segment},
                                                       std::vector<CountedSegment>{{update->segment.gradient, 0}},
                                                       /*num_units=*/1, at::zeros({}, wide));
  update->kernels->set_lr(1e-3);
  const auto call = [update] {
    update->kernels->squared_norms();
    update->kernels->update(update->norm, update->finite, {});
  };
  return {as_double(kGpuUpdated), clock_.add(call)};
}

// The same on a host, by ATen's fused operations.
ComputeBench::Amount ComputeBench::host_update() {
  const auto options = options_.dtype(at::kFloat);
  const auto make = [&](double value) { return std::vector<at::Tensor>{at::full({kUpdated}, value, options)}; };
  const auto parameters = make(1), gradients = make(0), first = make(0), second = make(0);
  const std::vector<at::Tensor> count = {at::ones({}, options)};
  const auto scale = at::ones({}, options);
  const auto skip = at::zeros({}, options);
  const auto call = [=] {
    const OptimizerOptions adamw;
    at::_foreach_norm(gradients, 2, at::kDouble);
    at::_fused_adamw_(parameters, gradients, first, second, {}, count, 1e-3, adamw.beta1, adamw.beta2,
                      adamw.weight_decay, adamw.eps, /*amsgrad=*/false, /*maximize=*/false, scale, skip);
  };
  return {as_double(kUpdated), clock_.add(call)};
}

// Few enough to stay in a core's cache: what it takes to draw them is what counts.
ComputeBench::Amount ComputeBench::draws() {
  const std::int64_t tokens = 128, channels = 256;
  const auto grid = nn::dropout_grid(nn::Pass(), "calibration", 0.1, {1, tokens, channels});
  const auto x = values({tokens, channels});
  return {as_double(tokens * channels), clock_.add([=] { nn::apply_dropout(grid, x); })};
}

// FLOPs per second, of the three products on average.
Curve ComputeBench::product_rates() const {
  Curve rates;
  for (const auto& linear : linears_) {
    const double seconds =
        clock_.seconds(linear.forward) + clock_.seconds(linear.inputs) + clock_.seconds(linear.weights);
    rates.points.push_back({linear.flops, 3 * linear.flops / seconds});
  }
  return rates;
}

void ComputeBench::fill_in(Hardware& hardware) const {
  hardware.products = product_rates();
  auto& points = hardware.products.points;
  hardware.peak_flops = std::ranges::max(points, {}, &Curve::Point::share).share;
  for (auto& point : points) point.share /= hardware.peak_flops;
  hardware.attention_share = std::min(rate(attention_) / hardware.peak_flops, 1.0);
  hardware.memory_bandwidth = rate(copy_);
  hardware.memory_efficiency = std::min(rate(sweeps_) / hardware.memory_bandwidth, 1.0);
  hardware.kernel_seconds = 1 / rate(kernels_);
  if (on_host()) {
    hardware.draw_rate = rate(draws_);
  } else {
    const double share = rate(dropped_attention_) / hardware.peak_flops;
    hardware.dropped_attention_share = std::min(share / head_share(kDroppedHead), 1.0);
  }
  hardware.interrupted = clock_.interrupted();
  hardware.update_rate = find_stack("orthant").optimizer_moved * rate(update_);
}

}  // namespace orthant::cli
