#include "orthant/plan/estimate/unit_time.h"

#include <algorithm>
#include <cmath>

namespace orthant {
namespace {

// As kFusedBackward, of attention that kept its scores.
constexpr double kPlainBackward = 2;

// FlashAttention 2's backward with sums in one order, in cuDNN's: on an H200 it makes a step of 256 ms with 16 layers
// 278 to 281 ms (32 heads of 64 channels, 4 x 4096 tokens; without that order it takes 1.5 times cuDNN's).
constexpr double kRepeatableBackward = 1.7;

// Kernels of a backward, in those of a forward.
constexpr int kBackwardKernels = 2;

// What runs while something travels: all of it, slowed, or until the last of it arrived.
double beside(double running, double travelling, const Link& link) {
  return std::max(running + link.slows_compute * travelling, travelling);
}

class UnitClock {
 public:
  UnitClock(const UnitWork& work, const PlanSettings& settings, const ExchangeSpans& spans, const Hardware& hardware)
      : work_(work),
        settings_(settings),
        spans_(spans),
        hardware_(hardware),
        element_(bytes_of(settings.compute)),
        tp_lost_(std::pow(1 - hardware.interrupted, 1 - spans.tp.ranks) - 1),
        cp_lost_(std::pow(1 - hardware.interrupted, 1 - spans.cp.ranks) - 1) {
    for (std::size_t i = 0; i < work.products.size(); ++i) {
      const double chunks = i + 1 == work.products.size() ? work.chunks : 1;
      const auto [all, n, k, float8] = work.products[i];
      const double m = all / chunks;
      const double forward = chunks * product_seconds({m, n, k, float8}, hardware, element_);
      forward_products_ += forward;
      input_products_ += chunks * product_seconds({m, k, n, float8}, hardware, element_);
      weight_products_ += chunks * product_seconds({k, n, m}, hardware, element_);
      if (i + 1 < work.products.size()) continue;
      if (work.logits_made > 1) input_products_ += forward;
      if (work.logits_made > 2) weight_products_ += forward + hardware.moving_seconds(work.remade_moved_bytes);
    }
  }

  UnitSeconds seconds() const {
    const double forward = forward_seconds() + hardware_.drawing_seconds(work_.forward_drawn);
    const double inputs = inputs_seconds();
    const double weights = weight_products_ + hardware_.moving_seconds(work_.weights_moved_bytes) +
                           hardware_.drawing_seconds(work_.weights_drawn);
    Waits forward_waits = waits(work_.forward_exchanges, false);
    forward_waits += interruptions_of_others(forward);
    Waits backward_waits = waits(work_.backward_exchanges, false);
    backward_waits += waits(work_.remade_exchanges, false);
    backward_waits += interruptions_of_others(inputs);
    Waits weights_waits = interruptions_of_others(weights);
    const double travelling = waits(work_.backward_exchanges, true).total();
    weights_waits.tp += beside(weights, travelling, link_of(spans_.tp, hardware_)) - weights;
    UnitSeconds unit;
    unit.forward = forward + forward_waits.total();
    unit.inputs = inputs + backward_waits.total();
    unit.weights = weights + weights_waits.total();
    unit.exchanged = forward_waits;
    unit.exchanged += backward_waits;
    unit.exchanged += weights_waits;
    return unit;
  }

 private:
  // Without what is drawn, which the work counts for forward and backward apart.
  double forward_seconds() const {
    return forward_products_ + attention_seconds() + hardware_.moving_seconds(work_.moved_bytes) + sweeps_seconds();
  }

  double inputs_seconds() const {
    const double attention = attention_backward() * attention_seconds();
    const double moved = hardware_.moving_seconds(work_.backward_moved_bytes) + kBackwardKernels * sweeps_seconds();
    return input_products_ + attention + moved + remade_seconds(forward_seconds()) +
           hardware_.drawing_seconds(work_.inputs_drawn);
  }

  // What a rank's own interruptions add to `computing` is in the card's figures. Ranks that exchange something in every
  // layer lose those of all of them: whoever runs waits for the one that does not.
  Waits interruptions_of_others(double computing) const {
    const double tp = computing * tp_lost_;
    return {.tp = tp, .cp = (computing + tp) * cp_lost_};
  }

  // In forwards.
  double attention_backward() const {
    if (!work_.fused_attention) return kPlainBackward;
    const bool by_library = work_.head_size > 0 && !work_.drops_attention;
    return kFusedBackward * (settings_.deterministic && by_library ? kRepeatableBackward : 1);
  }

  double attention_seconds() const {
    if (work_.attention_flops == 0) return 0;
    if (work_.fused_attention) {
      const double share = hardware_.attention_share_at(work_.head_size, work_.drops_attention);
      const double computing = work_.attention_flops / (hardware_.peak_flops * share);
      return std::max(computing, hardware_.moving_seconds(work_.attention_bytes)) + hardware_.kernel_seconds;
    }
    const double product = work_.attention_flops / 2;  // scores, and what they weigh
    return 2 * (product / (hardware_.peak_flops * hardware_.products.at(product)) + hardware_.kernel_seconds);
  }

  // To start the kernels that are neither products nor attention.
  double sweeps_seconds() const {
    const int attention = work_.attention_flops == 0 ? 0 : work_.fused_attention ? 1 : 2;
    const int others = work_.kernels - static_cast<int>(work_.products.size()) - attention;
    return std::max(others, 0) * hardware_.kernel_seconds;
  }

  // Without what is exchanged for it.
  double remade_seconds(double forward) const {
    if (work_.role != UnitRole::layer) return 0;
    switch (settings_.recompute) {
      case PlanRecompute::none:
        return 0;
      case PlanRecompute::selective:
        return attention_seconds() + hardware_.moving_seconds(work_.attention_moved_bytes);
      case PlanRecompute::full:
        return forward;
      case PlanRecompute::op:
        break;
    }
    return forward_products_ / 2;
  }

  // Of the exchanges that travel beside the products of weights' gradients, or of the others.
  Waits waits(const std::vector<PricedExchange>& exchanges, bool beside_weights) const {
    Waits all;
    for (const auto& exchange : exchanges) {
      if (exchange.beside_weights != beside_weights) continue;
      const Span& span = exchange.axis == Axis::tp ? spans_.tp : exchange.axis == Axis::cp ? spans_.cp : spans_.ep;
      double& seconds = exchange.axis == Axis::tp ? all.tp : exchange.axis == Axis::cp ? all.cp : all.ep;
      seconds += exchange_seconds(exchange.kind, exchange.bytes, span, hardware_);
    }
    return all;
  }

  const UnitWork& work_;
  const PlanSettings& settings_;
  const ExchangeSpans& spans_;
  const Hardware& hardware_;
  double element_;
  double tp_lost_;  // to interruptions of the other ranks, per second of computing
  double cp_lost_;
  double forward_products_ = 0;
  double input_products_ = 0;
  double weight_products_ = 0;
};

}  // namespace

double product_seconds(const Product& product, const Hardware& hardware, double element_bytes) {
  const auto [m, n, k, float8] = product;
  const bool narrow = float8 && hardware.float8_flops > 0;
  const double flops = product.flops();
  const double computing =
      flops / ((narrow ? hardware.float8_flops : hardware.peak_flops) * hardware.products.at(flops));
  const double read = (narrow ? 1 : element_bytes) * (n * k + m * k);
  const double moving = (element_bytes * m * n + read) / hardware.memory_bandwidth;
  return std::max(computing, moving) + hardware.kernel_seconds;
}

UnitSeconds unit_seconds(const UnitWork& work, const PlanSettings& settings, const ExchangeSpans& spans,
                         const Hardware& hardware) {
  return UnitClock(work, settings, spans, hardware).seconds();
}

}  // namespace orthant
