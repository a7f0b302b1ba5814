#include "plan/estimate/seed_functions.h"

#include <algorithm>
#include <cmath>

namespace orthant::seed001 {
namespace {

int ceil_of(double value) {
  return static_cast<int>(std::ceil(value));
}

int next_power_of_two(int value) {
  return 1 << ceil_of(std::log2(value));
}

int recommended_tp(int min_tp, Interconnect interconnect) {
  switch (interconnect) {
    case Interconnect::nvlink:
      return std::min(8, next_power_of_two(min_tp));
    case Interconnect::infiniband:
      return std::min(4, min_tp);
    case Interconnect::ethernet:
      break;
  }
  return std::min(2, min_tp);
}

int recommended_pp(int remaining_gpus, int model_depth) {
  const int max_pp = std::min(model_depth / 4, remaining_gpus);
  if (remaining_gpus <= 8) return 1;
  return std::min(remaining_gpus <= 16 ? 2 : 4, max_pp);
}

// The 2-byte tensor [batch, seq, hidden].
double hidden_gb(double batch, int seq, int hidden) {
  return batch * seq * hidden * 2 / 1e9;
}

}  // namespace

Recommendation recommend_parallelism_config(double model_params_b, int num_gpus, double gpu_memory_gb,
                                            Interconnect interconnect, int model_depth) {
  Recommendation result;
  result.required_gb = model_params_b * 2 * 1.5;
  result.min_tp = ceil_of(result.required_gb / gpu_memory_gb);
  Degrees& degrees = result.degrees;
  degrees.tp = recommended_tp(result.min_tp, interconnect);
  degrees.pp = recommended_pp(num_gpus / degrees.tp, model_depth);
  degrees.dp = num_gpus / (degrees.tp * degrees.pp);
  result.efficiency = (degrees.tp <= 4 ? 0.85 : 0.75) * (degrees.pp == 1 ? 0.9 : 0.8) * 0.95;
  return result;
}

MemoryUsage analyze_memory_usage(double model_params_b, int batch_size, int seq_length, int hidden_dim, int num_layers,
                                 int tp_size, int pp_size) {
  MemoryUsage usage;
  usage.parameters = model_params_b * 1e9 / (tp_size * pp_size) * 2 / 1e9;
  const double layers_per_stage = static_cast<double>(num_layers) / pp_size;
  usage.activations = hidden_gb(batch_size, seq_length, hidden_dim) / tp_size * layers_per_stage;
  usage.kv_cache = hidden_dim * 2.0 * 2 / 1e9 * seq_length * batch_size / tp_size;
  usage.optimizer = usage.parameters * 2;
  usage.total_inference = usage.parameters + usage.activations + usage.kv_cache;
  usage.total_training = usage.total_inference + usage.optimizer;
  return usage;
}

CommunicationVolume analyze_communication_volume(int batch_size, int seq_length, int hidden_dim, int num_layers,
                                                 int pp_size, int num_micro_batches) {
  CommunicationVolume volume;
  volume.tp = hidden_gb(batch_size, seq_length, hidden_dim) * 2 * (num_layers * 2);
  const int rows = batch_size / num_micro_batches;  // floor
  volume.pp = hidden_gb(rows, seq_length, hidden_dim) * (pp_size - 1) * num_micro_batches;
  const double model_params_b = 70;
  volume.dp = model_params_b * 2 * 2;
  return volume;
}

double model_scaling_efficiency(const Degrees& degrees, int num_micro_batches) {
  const double tp = degrees.tp == 1 ? 1.0 : degrees.tp <= 4 ? 0.9 : degrees.tp <= 8 ? 0.8 : 0.7;
  const double pp =
      degrees.pp == 1 ? 1.0 : static_cast<double>(num_micro_batches) / (num_micro_batches + degrees.pp - 1);
  return tp * pp * 0.95;
}

Degrees memory_constrained_strategy(double model_size_gb, double available_memory_gb, int num_gpus) {
  Degrees degrees;
  degrees.tp = std::min(8, next_power_of_two(ceil_of(model_size_gb / available_memory_gb)));
  if (model_size_gb / degrees.tp > available_memory_gb) {
    degrees.pp = ceil_of(model_size_gb / (available_memory_gb * degrees.tp));
  }
  degrees.dp = num_gpus / (degrees.tp * degrees.pp);
  return degrees;
}

Degrees throughput_optimized_strategy(int num_gpus, Interconnect interconnect, int model_depth) {
  Degrees degrees;
  if (interconnect == Interconnect::nvlink) {
    degrees.tp = num_gpus >= 8 ? 8 : num_gpus >= 4 ? 4 : num_gpus;
  } else if (interconnect == Interconnect::infiniband) {
    degrees.tp = std::min(4, num_gpus);
    const int remaining = num_gpus / degrees.tp;
    if (remaining > 4 && model_depth >= 64) degrees.pp = std::min(4, remaining);
  }
  degrees.dp = num_gpus / (degrees.tp * degrees.pp);
  return degrees;
}

Degrees latency_optimized_strategy(int num_gpus, bool model_fits_single_gpu) {
  return {.tp = model_fits_single_gpu ? 1 : num_gpus};
}

int get_global_rank(const Degrees& degrees, int dp_rank, int tp_rank, int pp_rank) {
  return dp_rank * (degrees.pp * degrees.tp) + pp_rank * degrees.tp + tp_rank;
}

Degrees printed_groups(const Degrees& degrees) {
  return {.tp = degrees.dp * degrees.pp, .pp = degrees.dp * degrees.tp, .dp = 1};
}

}  // namespace orthant::seed001
