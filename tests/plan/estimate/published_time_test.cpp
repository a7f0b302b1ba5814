// Times of published runs by estimate(), from the presets of cards and stacks alone. Sources are named in
// docs/planner.md.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "orthant/models/llama/config.h"
#include "orthant/plan/estimate/plan.h"
#include "orthant/plan/estimate/unit_time.h"
#include "plan/estimate/published_runs.h"

namespace orthant {
namespace published_time_test {

constexpr std::int64_t kVocab = 51200;
constexpr std::int64_t kSequence = 2048;

// A GPT-3 style run on A100-80 with attention that is not fused.
struct GptRun {
  std::int64_t layers, hidden, heads;
  int tp, pp, virtual_stages, dp;
  std::int64_t micro_batch, batch;

  PlanModel model() const { return gpt(layers, hidden, heads, kVocab, kSequence); }

  PlanSettings settings(PlanRecompute recompute, bool sequence_parallel) const {
    const Mesh mesh({{Axis::tp, tp}, {Axis::pp, pp}, {Axis::dp, dp}});
    PlanSettings settings = run_of(mesh.to_string(), micro_batch, batch / (micro_batch * dp), kSequence);
    settings.flash = false;
    settings.recompute = recompute;
    settings.tensor.sequence_parallel = sequence_parallel;
    if (virtual_stages > 1) settings.stages.schedule = "interleaved";
    settings.stages.virtual_stages = virtual_stages;
    return settings;
  }

  double seconds(PlanRecompute recompute, bool sequence_parallel) const {
    return estimate(model(), settings(recompute, sequence_parallel), find_hardware("a100-80gb"), find_stack("megatron"))
        .time.step;
  }

  // Of a step with the forward made again, as Narayanan 2021 counts them.
  double flops() const {
    const auto h = static_cast<double>(hidden);
    const auto l = static_cast<double>(layers);
    return 96.0 * static_cast<double>(batch) * l * kSequence * h * h *
           (1 + kSequence / (6 * h) + kVocab / (16 * l * h));
  }
  double seconds_at(double teraflops) const { return flops() / (teraflops * 1e12 * tp * pp * dp); }
};

// Korthikanti 2022, table 5: full recompute; selective recompute with sequence parallelism.
TEST(PublishedTime, OfKorthikanti) {
  struct Row {
    GptRun run;
    double full, selective;
  };
  std::vector<double> errors;
  for (const auto& [run, full, selective] :
       {Row{{48, 6144, 64, 8, 1, 1, 1, 4, 4}, 1.42, 1.10}, Row{{96, 12288, 96, 8, 8, 3, 1, 1, 64}, 18.13, 13.75},
        Row{{105, 20480, 128, 8, 35, 3, 1, 1, 280}, 49.05, 37.83},
        Row{{128, 25600, 160, 8, 64, 1, 1, 1, 512}, 94.42, 71.49}}) {
    const auto name = fmt::format("Korthikanti step, {} layers", run.layers);
    errors.push_back(tell(name + ", full", full, run.seconds(PlanRecompute::full, false), "s"));
    EXPECT_LE(std::abs(errors.back()), 0.1) << run.layers << " layers, full";
    errors.push_back(tell(name + ", selective", selective, run.seconds(PlanRecompute::selective, true), "s"));
    EXPECT_LE(std::abs(errors.back()), 0.1) << run.layers << " layers, selective";
  }
  const double sum =
      std::accumulate(errors.begin(), errors.end(), 0.0, [](double all, double one) { return all + std::abs(one); });
  EXPECT_LE(sum / static_cast<double>(errors.size()), 0.05);
}

// Korthikanti 2022, table 4: forward and backward of one layer of the 22B model, in milliseconds.
TEST(PublishedTime, OfOneLayer) {
  struct Row {
    PlanRecompute recompute;
    bool sequence_parallel;
    double forward, both;
  };
  const GptRun run{48, 6144, 64, 8, 1, 1, 1, 4, 4};
  const Hardware hardware = find_hardware("a100-80gb");
  for (const auto& [recompute, sequence_parallel, forward, both] :
       {Row{PlanRecompute::none, false, 7.7, 19.6}, Row{PlanRecompute::none, true, 7.2, 19.0},
        Row{PlanRecompute::full, false, 7.7, 27.2}, Row{PlanRecompute::selective, false, 7.7, 20.9},
        Row{PlanRecompute::selective, true, 7.2, 20.3}}) {
    const PlanSettings settings = run.settings(recompute, sequence_parallel);
    const ModelWork work = formula_work(*run.model().shape, find_stack("megatron"), settings);
    ExchangeSpans spans;
    spans.tp = span_of(settings.mesh, Axis::tp, hardware.cards_per_node);
    const UnitSeconds layer = unit_seconds(work.at(1), settings, spans, hardware);
    const auto name = fmt::format("Korthikanti layer, {}", plan_recompute_name(recompute));
    EXPECT_LE(std::abs(tell(name + ", forward", forward, layer.forward * 1e3, "ms")), 0.05) << name;
    EXPECT_LE(std::abs(tell(name + ", both", both, layer.total() * 1e3, "ms")), 0.05) << name;
  }
}

// Narayanan 2021, table 1: TFLOP/s per GPU with full recompute. Where the source leaves open how many microbatches or
// stages there are, both ways that fit are tried.
TEST(PublishedTime, OfNarayanan) {
  struct Row {
    GptRun run;
    double teraflops;
  };
  for (const auto& [run, teraflops] :
       {Row{{24, 2304, 24, 1, 1, 1, 32, 16, 512}, 137}, Row{{30, 3072, 32, 2, 1, 1, 32, 16, 512}, 138},
        Row{{36, 4096, 32, 4, 1, 1, 32, 16, 512}, 142}, Row{{40, 6144, 48, 8, 1, 1, 32, 8, 1024}, 135},
        Row{{40, 6144, 48, 8, 1, 1, 32, 4, 1024}, 135}, Row{{48, 8192, 64, 8, 2, 1, 32, 4, 1536}, 138},
        Row{{60, 10240, 80, 8, 4, 3, 32, 2, 1792}, 140}, Row{{80, 12288, 96, 8, 8, 1, 24, 2, 2304}, 148},
        Row{{80, 12288, 96, 8, 8, 2, 24, 2, 2304}, 148}, Row{{96, 16384, 128, 8, 16, 2, 15, 1, 2160}, 155},
        Row{{105, 20480, 128, 8, 35, 1, 9, 1, 2520}, 163}, Row{{105, 20480, 128, 8, 35, 3, 9, 1, 2520}, 163},
        Row{{128, 25600, 160, 8, 64, 1, 6, 1, 3072}, 163}}) {
    const auto name = fmt::format("Narayanan step, {} layers, {} stages per pp coordinate, micro batch {}", run.layers,
                                  run.virtual_stages, run.micro_batch);
    const double seconds = run.seconds(PlanRecompute::full, false);
    EXPECT_LE(std::abs(tell(name, run.seconds_at(teraflops), seconds, "s")), 0.12) << name;
  }
}

// ZeRO-3 without other parallelism, the whole batch as one microbatch per card.
double zero3_seconds(const GptRun& run, int cards) {
  PlanSettings settings = run_of("fsdp=" + std::to_string(cards), run.batch / cards, 1, kSequence);
  settings.flash = false;
  settings.recompute = PlanRecompute::full;
  settings.data.zero = 3;
  settings.gradients = DType::float16;
  return estimate(run.model(), settings, find_hardware("a100-80gb"), find_stack("deepspeed")).time.step;
}

// Narayanan 2021, table 2: 175B on tensor and pipeline parallelism, and on ZeRO-3, which loses.
TEST(PublishedTime, Zero3LosesToTensorAndPipelineParallelism) {
  struct Row {
    int cards;
    double both, zero3;  // TFLOP/s
  };
  for (const auto& [cards, both, zero3] : {Row{384, 153, 144}, Row{768, 149, 88}, Row{1536, 141, 44}}) {
    const GptRun run{96, 12288, 96, 8, 12, 1, cards / 96, 1, 1536};
    const double seconds = run.seconds(PlanRecompute::full, false);
    const double shards = zero3_seconds(run, cards);
    const auto name = fmt::format("Narayanan 175B on {} cards", cards);
    EXPECT_LE(std::abs(tell(name, run.seconds_at(both), seconds, "s")), 0.12) << name;
    EXPECT_GT(shards, seconds) << cards;
    EXPECT_LE(std::abs(tell(name + ", ZeRO-3", run.seconds_at(zero3), shards, "s")), 0.15) << name;
  }
}

// Zero Bubble 2024, table 5: sequences per GPU and second of 1F1B.
TEST(PublishedTime, OfZeroBubble) {
  struct Row {
    std::int64_t layers, hidden, heads;
    int pp;
    std::int64_t micro_batch, microbatches;
    double published;
  };
  for (const Row& row :
       {Row{22, 2304, 24, 8, 6, 24, 11.8}, Row{22, 2304, 24, 8, 6, 64, 13.6}, Row{30, 4096, 32, 8, 3, 24, 3.5},
        Row{30, 4096, 32, 8, 3, 64, 4.03}, Row{62, 6144, 48, 32, 1, 96, 0.76}, Row{62, 6144, 48, 32, 1, 256, 0.88}}) {
    PlanSettings settings = run_of("pp=" + std::to_string(row.pp), row.micro_batch, row.microbatches, 1024);
    settings.flash = false;
    const Plan plan = estimate(gpt(row.layers, row.hidden, row.heads, 50304, 1024), settings,
                               find_hardware("a100-80gb"), find_stack("megatron"));
    const auto name = fmt::format("Zero Bubble speed, {} layers, {} microbatches", row.layers, row.microbatches);
    EXPECT_LE(std::abs(tell(name, row.published, plan.tokens_per_second_per_gpu / 1024, "rows/s")), 0.08) << name;
  }
}

// MegaScale 2024, table 2: seconds of Megatron-LM's step, 175B with a batch of 768.
TEST(PublishedTime, OfMegatronBesideMegaScale) {
  struct Row {
    int cards;
    double published;
  };
  for (const auto& [cards, published] : {Row{256, 40.0}, Row{512, 21.2}, Row{768, 15.2}, Row{1024, 11.9}}) {
    const int replicas = cards / 64;
    PlanSettings settings = run_of("tp=8,pp=8,fsdp=" + std::to_string(replicas), 1, 768 / replicas, kSequence);
    settings.flash = false;
    settings.recompute = PlanRecompute::selective;
    settings.tensor.sequence_parallel = true;
    settings.data.zero = 1;
    settings.stages.schedule = "interleaved";
    settings.stages.virtual_stages = 6;
    const Plan plan =
        estimate(gpt(96, 12288, 128, 64000, kSequence), settings, find_hardware("a100-80gb"), find_stack("megatron"));
    const auto name = fmt::format("MegaScale's Megatron-LM step on {} cards", cards);
    EXPECT_LE(std::abs(tell(name, published, plan.time.step, "s")), 0.1) << name;
  }
}

// torchtitan, December 2024 and June 2025: tokens per GPU and second on H100-96 at 500 W.
TEST(PublishedTime, OfTorchtitan) {
  struct Row {
    const char* model;
    const char* mesh;
    std::int64_t micro_batch;
    PlanRecompute recompute;
    double published;
  };
  for (const Row& row : {Row{"llama3.1-8b", "fsdp=8", 2, PlanRecompute::op, 6667},
                         Row{"llama3.1-8b", "fsdp=128", 2, PlanRecompute::op, 6514},
                         Row{"llama3.1-70b", "fsdp=32,tp=8", 16, PlanRecompute::full, 597}}) {
    PlanSettings settings = run_of(row.mesh, row.micro_batch, 1, 8192);
    settings.data.zero = 3;
    settings.recompute = row.recompute;
    settings.tensor.sequence_parallel = true;
    const Plan plan =
        estimate(find_plan_model(row.model), settings, find_hardware("h100-96gb"), find_stack("torchtitan"));
    const auto name = fmt::format("torchtitan speed, {} on {}", row.model, row.mesh);
    EXPECT_LE(std::abs(tell(name, row.published, plan.tokens_per_second_per_gpu, "tokens/s")), 0.1) << name;
  }
}

// nanotron, docs/benchmark_summary.svg: MFU of the best runs on 8 and 32 H100, cut by cost as it does. Its 70B on 32
// cards is no row here: published are 14.8%, a third of the same model's on 64 and 128 cards.
TEST(PublishedTime, OfNanotron) {
  struct Row {
    std::int64_t layers, hidden, inner;
    bool tied;
    const char* mesh;
    const char* split;
    std::int64_t microbatches, micro_batch;
    double published;
  };
  for (const Row& row : {Row{16, 2048, 8192, true, "fsdp=4,pp=2", "11,5", 16, 4, 0.443},
                         Row{28, 3072, 8192, true, "fsdp=4,pp=2", "16,12", 32, 2, 0.467},
                         Row{32, 4096, 14336, false, "fsdp=2,pp=4", "9,9,8,6", 128, 1, 0.452},
                         Row{16, 2048, 8192, true, "fsdp=16,pp=2", "11,5", 16, 1, 0.384},
                         Row{28, 3072, 8192, true, "fsdp=16,pp=2", "16,12", 8, 2, 0.404},
                         Row{32, 4096, 14336, false, "fsdp=16,pp=2", "18,14", 16, 1, 0.433}}) {
    LlamaConfig config;
    config.num_hidden_layers = row.layers;
    config.hidden_size = row.hidden;
    config.intermediate_size = row.inner;
    config.num_attention_heads = 32;
    config.vocab_size = 131072;
    config.max_position_embeddings = 4096;
    config.tie_word_embeddings = row.tied;
    PlanSettings settings = run_of(row.mesh, row.micro_batch, row.microbatches, 4096);
    settings.split = row.split;
    settings.data.zero = 1;
    const Plan plan =
        estimate(plan_model("llama", config), settings, find_hardware("h100-80gb"), find_stack("nanotron"));
    const auto name = fmt::format("nanotron MFU, hidden {} on {}", row.hidden, row.mesh);
    EXPECT_LE(std::abs(tell(name, row.published, plan.mfu, "of peak")), 0.1) << name;
  }
}

}  // namespace published_time_test
}  // namespace orthant
