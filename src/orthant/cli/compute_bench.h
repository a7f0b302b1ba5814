// What a rank computes and moves on its own, measured with the functions that a training runs: products, attention,
// kernels that sweep over memory, the start of a kernel, an update, dropout (on a GPU with attention and LayerNorm,
// which draw it themselves).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "orthant/cli/rank_clock.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/plan/estimate/hardware.h"

namespace orthant::cli {

class ComputeBench {
 public:
  // Gives its work to the clock. `dtype`: in which the machine computes.
  ComputeBench(RankClock& clock, at::ScalarType dtype);

  // After the clock has run. Local.
  void fill_in(Hardware& hardware) const;

 private:
  // A linear's three products of so many FLOPs each.
  struct Linear {
    double flops = 0;
    std::size_t forward = 0, inputs = 0, weights = 0;
  };
  // FLOPs, bytes, kernels or parameters, and the piece of work that has them.
  struct Amount {
    double amount = 0;
    std::size_t piece = 0;
  };

  bool on_host() const { return clock_.device().is_cpu(); }
  at::Tensor values(at::IntArrayRef shape) const;
  void add_linear(std::int64_t width);
  nn::AttentionOptions usual_attention() const;
  nn::AttentionOptions dropped_attention() const;
  Amount attention(const nn::AttentionOptions& options, std::int64_t rows, std::int64_t sequence);
  Amount copy();
  Amount device_sweeps();
  Amount host_sweeps();
  Amount host_kernels();
  Amount device_kernels();
  Amount host_update();
  Amount device_update();
  Amount draws();

  Curve product_rates() const;
  double rate(const Amount& amount) const { return amount.amount / clock_.seconds(amount.piece); }

  RankClock& clock_;
  at::TensorOptions options_;
  std::vector<Linear> linears_;
  Amount attention_, copy_, sweeps_, kernels_, update_;
  Amount draws_;              // of a host
  Amount dropped_attention_;  // of a device
};

}  // namespace orthant::cli
