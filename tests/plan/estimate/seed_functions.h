// The functions of seed 001 (docs/planner_seed001.md), formula by formula, with its names and units: what they return,
// right or wrong. Only seed_figures.cpp calls them, to print them beside what the planner says.
#pragma once

namespace orthant::seed001 {

enum class Interconnect { nvlink, infiniband, ethernet };

struct Degrees {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  friend bool operator==(const Degrees&, const Degrees&) = default;
};

struct Recommendation {
  Degrees degrees;
  double required_gb = 0;  // of the whole model
  int min_tp = 1;
  double efficiency = 0;
};
Recommendation recommend_parallelism_config(double model_params_b, int num_gpus, double gpu_memory_gb,
                                            Interconnect interconnect, int model_depth);

// GB per GPU.
struct MemoryUsage {
  double parameters = 0;
  double activations = 0;
  double kv_cache = 0;
  double optimizer = 0;
  double total_inference = 0;
  double total_training = 0;
};
MemoryUsage analyze_memory_usage(double model_params_b, int batch_size, int seq_length, int hidden_dim, int num_layers,
                                 int tp_size, int pp_size);

// GB.
struct CommunicationVolume {
  double tp = 0;
  double pp = 0;
  double dp = 0;
  double total() const { return tp + pp + dp; }
};
CommunicationVolume analyze_communication_volume(int batch_size, int seq_length, int hidden_dim, int num_layers,
                                                 int pp_size, int num_micro_batches);

double model_scaling_efficiency(const Degrees& degrees, int num_micro_batches);

Degrees memory_constrained_strategy(double model_size_gb, double available_memory_gb, int num_gpus);
Degrees throughput_optimized_strategy(int num_gpus, Interconnect interconnect, int model_depth);
Degrees latency_optimized_strategy(int num_gpus, bool model_fits_single_gpu);

// HybridParallelConfig.get_global_rank: dp outermost, tp innermost.
int get_global_rank(const Degrees& degrees, int dp_rank, int tp_rank, int pp_rank);

// analyze_communication_patterns: how many groups it prints.
Degrees printed_groups(const Degrees& degrees);

}  // namespace orthant::seed001
