// The examples of seed 001 in the order of its text.
#include "plan/estimate/seed_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/estimate/seed_planner.h"

namespace orthant {
namespace {

using seed001::Degrees;
using seed001::Interconnect;
using seed001::kGigabyte;
using seed001::kSequence;
using seed001::Planner;
using seed001::Rows;
using seed001::Volume;

constexpr std::string_view kNoMath = "NameError: name 'math' is not defined";

double in_gb(std::int64_t bytes) {
  return static_cast<double>(bytes) / kGigabyte;
}

SeedExample largest_model(const Planner& planner) {
  const double card = 80;
  const double training = planner.state_bytes(0, 1);
  return {"largest model by data parallelism alone",
          "\"Max model: ~70B parameters in FP16\" on an 80 GB card",
          "",
          {{"to serve", 70, card / planner.stack().parameter_bytes, "B parameters", "2 bytes each fill it", {20}},
           {"to train",
            70,
            card / training,
            "B parameters",
            fmt::format("{:.0f} bytes each: weights, gradients, optimizer", training),
            {1, 2, 20}},
           {"memory of the card",
            card,
            in_gb(planner.card().memory_bytes),
            "GB",
            "80 GiB less what the driver keeps",
            {21}}}};
}

SeedExample mesh_of_64() {
  const Degrees degrees{.tp = 4, .pp = 4, .dp = 4};
  const Mesh mesh = Mesh::parse("dp=4,pp=4,tp=4", "dp,pp,tp");
  Coordinate coordinate;
  coordinate[Axis::dp] = 1;
  coordinate[Axis::pp] = 1;
  return {"mesh of 64 GPUs",
          "HybridParallelConfig(data_parallel_size=4, tensor_parallel_size=4, pipeline_parallel_size=4).visualize()",
          "NameError: name 'dp_size' is not defined",
          {{"ranks", degrees.dp * degrees.tp * degrees.pp, mesh.world_size(), "ranks", "agrees"},
           {"rank at dp 1, pp 1, tp 0", seed001::get_global_rank(degrees, 1, 0, 1), mesh.rank_of(coordinate), "rank",
            "agrees: dp outermost, tp innermost"}}};
}

SeedExample patterns_of_64(const Planner& planner) {
  const Degrees degrees{.tp = 4, .pp = 4, .dp = 4};
  const Degrees groups = seed001::printed_groups(degrees);
  const Mesh mesh = Mesh::parse("pp=4,dp=4,tp=4");
  const auto exchanges = static_cast<double>(seed001::exchanges_of(planner.layer(degrees, {})).size());
  return {"communication patterns of 64 GPUs",
          "analyze_communication_patterns(HybridParallelConfig(dp_size=4, tp_size=4, pp_size=4))",
          "TypeError: HybridParallelConfig.__init__() got an unexpected keyword argument 'dp_size'",
          {{"tensor groups", groups.tp, mesh.num_groups(Axis::tp), "groups", "agrees"},
           {"pipeline groups", groups.pp, mesh.num_groups(Axis::pp), "groups", "agrees"},
           {"data groups", groups.dp, mesh.num_groups(Axis::dp), "groups", "one per tp and pp coordinate", {15}},
           {"sums of a layer and microbatch", 2, exchanges, "all-reduces", "backward has two as well", {11}}}};
}

void add_choice(SeedExample& example, const Degrees& seed, const std::vector<Plan>& plans, std::vector<int> mistakes) {
  const Plan* plan = plans.empty() ? nullptr : &plans.front();
  const auto degree = [&](Axis axis) {
    return plan == nullptr ? std::nullopt : std::optional<double>(plan->settings.mesh.degree(axis));
  };
  const std::string why = plan == nullptr ? "nothing fits" : fmt::format("search: {}", train_words(plan->settings));
  const auto replicas = plan == nullptr ? std::nullopt : std::optional<double>(plan->settings.replicas());
  example.figures.push_back({"tp", seed.tp, degree(Axis::tp), "ranks", why, mistakes});
  example.figures.push_back({"pp", seed.pp, degree(Axis::pp), "ranks", "", mistakes});
  example.figures.push_back({"replicas", seed.dp, replicas, "ranks", "", mistakes});
  if (plan == nullptr) return;
  example.figures.push_back(
      {"memory of the chosen plan", std::nullopt, in_gb(plan->peak_bytes()), "GB per GPU", "worst stage; it fits", {}});
}

struct Recommended {
  std::string name;
  std::string call;
  PlanModel model;
  double parameters = 0;
  int cards = 1;
  seed001::Recommendation seed;
};

SeedExample recommendation(const Planner& planner, const Recommended& asked) {
  const Degrees& degrees = asked.seed.degrees;
  const std::vector<Plan> plans = planner.choose(asked.model, asked.cards, Strategy::throughput);
  SeedExample example{asked.name, asked.call, std::string(kNoMath)};
  add_choice(example, degrees, plans, {18, 24});
  const double planned = asked.seed.required_gb / (degrees.tp * degrees.pp);
  for (const int zero : {0, 1, 3}) {
    example.figures.push_back(
        {fmt::format("memory of its mesh, ZeRO-{}", zero),
         planned,
         planner.states_gb(asked.parameters, degrees, zero),
         "GB per GPU",
         fmt::format("{:.4g} bytes per parameter, activations not counted", planner.state_bytes(zero, degrees.dp)),
         {1, 2, 3, 18}});
  }
  if (!plans.empty()) {
    example.figures.push_back({"efficiency",
                               100 * asked.seed.efficiency,
                               100 * plans.front().time.compute / plans.front().time.step,
                               "%",
                               "share of the chosen plan's step that computes",
                               {16, 17}});
  }
  return example;
}

SeedExample recommend_llama(const Planner& planner) {
  return recommendation(planner,
                        {"recommendation 1: Llama-70B on 32 A100, NVLink",
                         "recommend_parallelism_config(70, num_gpus=32, gpu_memory_gb=80, 'nvlink', model_depth=80)",
                         planner.llama(), static_cast<double>(planner.llama().num_parameters()), 32,
                         seed001::recommend_parallelism_config(70, 32, 80, Interconnect::nvlink, 80)});
}

SeedExample recommend_175b(const Planner& planner) {
  return recommendation(
      planner, {"recommendation 2: 175B on 128 A100, InfiniBand",
                "recommend_parallelism_config(175, num_gpus=128, gpu_memory_gb=80, 'infiniband', model_depth=96)",
                find_plan_model("gpt3-175b"), 175e9, 128,
                seed001::recommend_parallelism_config(175, 128, 80, Interconnect::infiniband, 96)});
}

double cache_gb(const InferenceSize& size) {
  return in_gb(std::ranges::max(size.stages, {}, &InferenceStage::cache).cache);
}

PlanModel with_all_heads(PlanModel model) {
  model.config.reset();
  model.shape->kv_heads = model.shape->heads;
  return model;
}

void add_worst_rank(SeedExample& example, const Planner& planner, const Degrees& degrees, const Rows& rows, int zero) {
  example.figures.push_back({fmt::format("training here, worst rank, ZeRO-{} on 4 replicas", zero),
                             std::nullopt,
                             planner.worst_rank_gb(degrees, rows, zero),
                             "GB",
                             "orthant train; temporaries and reserve counted",
                             {9, 10}});
}

SeedExample memory_usage(const Planner& planner) {
  const auto seed = seed001::analyze_memory_usage(70, 32, kSequence, 8192, 80, 4, 2);
  const Degrees degrees{.tp = 4, .pp = 2, .dp = 4};
  const Rows rows{.micro_batch = 4, .microbatches = 8};
  const double local = planner.local_parameters(degrees) / kGigabyte;
  const double activations = planner.activations_gb(degrees, rows);
  const double whole = local * planner.state_bytes(0, 1);
  const double sharded = local * planner.state_bytes(1, degrees.dp);
  const double weights = local * planner.stack().parameter_bytes;
  const double gradients = local * static_cast<double>(bytes_of(DType::float32));
  const double optimizer = local * planner.stack().optimizer_bytes;
  const double cache = cache_gb(planner.serve(planner.llama(), 32, kSequence));
  const double wide_cache = cache_gb(planner.serve(with_all_heads(planner.llama()), 32, kSequence));
  SeedExample example{
      "memory of Llama-70B, tp 4, pp 2",
      "analyze_memory_usage(70, batch_size=32, seq_length=2048, hidden_dim=8192, num_layers=80, tp_size=4, pp_size=2)",
      ""};
  example.figures = {
      {"parameters", seed.parameters, weights, "GB", "70.55B, not 70B"},
      {"gradients", std::nullopt, gradients, "GB", "float32; 2 bytes less in bfloat16", {2}},
      {"optimizer", seed.optimizer, optimizer, "GB", "12 bytes each: master, two moments", {1}},
      {"optimizer, ZeRO-1 on 4 replicas",
       seed.optimizer,
       optimizer / degrees.dp,
       "GB",
       "it says partitioned, divides nothing",
       {3}},
      {"activations", seed.activations, activations, "GB", "all tensors of 2 microbatches in flight", {6, 7, 8}},
      {"KV cache", seed.kv_cache, cache, "GB", "40 layers, 8 key/value heads", {4}},
      {"KV cache without shared heads", seed.kv_cache, wide_cache, "GB", "40 layers, 64 key/value heads", {4}},
      {"inference", seed.total_inference, weights + cache, "GB", "keeps no activations of layers", {4, 6}},
      {"training states", std::nullopt, whole, "GB", "18 bytes per parameter", {1, 2}},
      {"training states, ZeRO-1 on 4 replicas", std::nullopt, sharded, "GB", "9 bytes per parameter", {3}},
      {"training",
       seed.total_training,
       whole + activations,
       "GB",
       "no cache, but gradients and activations",
       {1, 2, 5, 6, 7}},
      {"training, ZeRO-1 on 4 replicas", seed.total_training, sharded + activations, "GB", "likewise", {3, 5, 6, 7}}};
  add_worst_rank(example, planner, degrees, rows, 0);
  add_worst_rank(example, planner, degrees, rows, 1);
  return example;
}

SeedExample communication_volume(const Planner& planner) {
  const auto seed = seed001::analyze_communication_volume(32, kSequence, 8192, 80, 2, 8);
  const Degrees degrees{.tp = 4, .pp = 2, .dp = 4};
  const Rows replica{.micro_batch = 4, .microbatches = 8};
  const Rows global{.micro_batch = 1, .microbatches = 8};
  const Volume sent = planner.sent_gb(degrees, replica, DType::bfloat16);
  const Volume wide = planner.sent_gb(degrees, replica, DType::float32);
  const Volume small = planner.sent_gb(degrees, global, DType::bfloat16);
  const Volume parts = planner.sent_gb(degrees, replica, DType::bfloat16, true);
  const Volume alone = planner.sent_gb({.tp = 4, .pp = 2, .dp = 1}, replica, DType::bfloat16);
  const Volume seconds = planner.exchange_seconds(degrees, replica);
  const double all_seconds = seconds.tp + seconds.pp + seconds.dp;
  return {
      "communication of Llama-70B, tp 4, pp 2, dp 4",
      "analyze_communication_volume(batch_size=32, seq_length=2048, hidden_dim=8192, num_layers=80, tp_size=4, "
      "pp_size=2, dp_size=4, num_micro_batches=8)",
      "",
      {{"TP, 32 rows per replica", seed.tp, sent.tp, "GB per GPU", "4 sums a layer, 40 layers, 2(t-1)/t", {11}},
       {"TP, 32 rows in all", seed.tp, small.tp, "GB per GPU", "a replica has 8 of them", {11}},
       {"PP", seed.pp, sent.pp, "GB per GPU", "forward and backward of 8 microbatches", {13}},
       {"PP, each tp rank its part", seed.pp, parts.pp, "GB per GPU", "with sequence parallelism", {13}},
       {"DP, bfloat16 gradients", seed.dp, sent.dp, "GB per GPU", "of P/(tp pp), 2(d-1)/d", {12}},
       {"DP, float32 gradients", seed.dp, wide.dp, "GB per GPU", "likewise", {12}},
       {"DP on one replica", seed.dp, alone.dp, "GB per GPU", "nobody to send to", {12}},
       {"share of TP", 100 * seed.tp / seed.total(), 100 * seconds.tp / all_seconds, "%", "of time, on NVLink", {14}},
       {"share of PP", 100 * seed.pp / seed.total(), 100 * seconds.pp / all_seconds, "%", "of time", {14}},
       {"share of DP",
        100 * seed.dp / seed.total(),
        100 * seconds.dp / all_seconds,
        "%",
        "of time, on the network",
        {14}}}};
}

SeedExample serving(const Planner& planner) {
  const PlanModel model = find_plan_model("llama2-70b");
  const InferenceSize size = planner.serve(model, 128, 4096);
  const InferenceStage& worst = size.stages[static_cast<std::size_t>(size.worst_stage())];
  return {"serving Llama-2-70b",
          "LLM(\"meta-llama/Llama-2-70b-hf\", tensor_parallel_size=4, pipeline_parallel_size=2, max_num_seqs=128)",
          "",
          {{"GPUs", 8, size.mesh.world_size(), "ranks", "agrees"},
           {"memory, 128 sequences of 4096", std::nullopt, in_gb(worst.total()), "GB per GPU",
            size.fits ? "fits" : size.why_not},
           {"largest batch at 4096 tokens", std::nullopt, static_cast<double>(size.largest_batch), "sequences",
            "what is left holds the cache"}}};
}

SeedExample scaling(const Planner& planner) {
  struct Configuration {
    Degrees degrees;
    int microbatches;
  };
  SeedExample example{"scaling efficiency", "model_scaling_efficiency(tp, pp, dp, num_micro_batches)", ""};
  const auto add = [&](const std::string& name, const Degrees& degrees, int microbatches, const std::string& why) {
    example.figures.push_back({name,
                               100 * seed001::model_scaling_efficiency(degrees, microbatches),
                               100 * planner.scaling_efficiency(degrees, microbatches),
                               "%",
                               why,
                               {16, 17}});
  };
  for (const auto& [degrees, microbatches] :
       {Configuration{{2, 1, 1}, 4}, Configuration{{4, 1, 1}, 4}, Configuration{{2, 2, 1}, 8},
        Configuration{{4, 2, 1}, 8}, Configuration{{4, 2, 2}, 8}}) {
    add(fmt::format("tp {}, pp {}, dp {}, {} microbatches", degrees.tp, degrees.pp, degrees.dp, microbatches), degrees,
        microbatches, "Llama-70B, priced; follows sizes and links");
  }
  add("one card", {}, 4, "one replica has nothing to lose");
  return example;
}

// Its strategies, which its text calls nowhere, with the numbers of its recommendations.

SeedExample memory_strategy(const Planner& planner) {
  SeedExample example{
      "memory-constrained strategy, Llama-70B on 32",
      "memory_constrained_strategy(model_size_gb=140, available_memory_gb=80, num_gpus=32), called nowhere",
      std::string(kNoMath)};
  const Degrees degrees = seed001::memory_constrained_strategy(140, 80, 32);
  add_choice(example, degrees, planner.choose(planner.llama(), 32, Strategy::memory), {18, 19});
  example.figures.push_back({"memory of its mesh",
                             140.0 / degrees.tp,
                             planner.states_gb(static_cast<double>(planner.llama().num_parameters()), degrees, 0),
                             "GB per GPU",
                             "18 bytes per parameter",
                             {1, 2}});
  return example;
}

SeedExample throughput_strategy(const Planner& planner) {
  SeedExample example{"throughput-optimized strategy, Llama-70B on 32",
                      "throughput_optimized_strategy(32, 'nvlink', model_depth=80), called nowhere", ""};
  const Degrees degrees = seed001::throughput_optimized_strategy(32, Interconnect::nvlink, 80);
  add_choice(example, degrees, planner.choose(planner.llama(), 32, Strategy::throughput), {18});
  return example;
}

SeedExample latency_strategy(const Planner& planner) {
  SeedExample example{"latency-optimized strategy, Llama-70B on 32",
                      "latency_optimized_strategy(32, model_fits_single_gpu=False), called nowhere", ""};
  const Degrees degrees = seed001::latency_optimized_strategy(32, false);
  add_choice(example, degrees, planner.choose(planner.llama(), 32, Strategy::latency), {19});
  return example;
}

}  // namespace

std::vector<SeedExample> seed_examples() {
  const Planner planner;
  return {largest_model(planner),
          mesh_of_64(),
          patterns_of_64(planner),
          recommend_llama(planner),
          recommend_175b(planner),
          memory_usage(planner),
          communication_volume(planner),
          serving(planner),
          scaling(planner),
          memory_strategy(planner),
          throughput_strategy(planner),
          latency_strategy(planner)};
}

}  // namespace orthant
