// What a step has besides its state: microbatches in flight by schedule, what waits for weights, blocks that stay.
#include "orthant/plan/estimate/step_memory.h"

#include <gtest/gtest.h>

#include "orthant/layout/tensor_policy.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {
namespace step_memory_test {

constexpr int kMicrobatches = 6;

struct Priced {
  std::vector<StepMoment> moments;  // per pp coordinate
  std::vector<double> kept;         // per pp coordinate: of one microbatch, logits left out
};

PlanSettings settings_of(const std::string& mesh, const std::string& schedule) {
  PlanSettings settings;
  settings.mesh = Mesh::parse(mesh);
  settings.micro_batch = 2;
  settings.global_batch = 2 * kMicrobatches * settings.replicas();
  settings.sequence = 16;
  settings.compute = DType::float32;
  settings.stages.schedule = schedule;
  settings.on_host = true;
  return settings;
}

Priced priced(const PlanSettings& settings) {
  auto config = llama_preset("llama-tiny");
  config.num_hidden_layers = 6;
  const auto graph = resolved_graph(build_spec(config, {.rows = settings.micro_batch, .sequence = settings.sequence}),
                                    settings.tensor, 1);
  const auto work = program_work(graph, settings);
  const int pp = settings.mesh.degree(Axis::pp);
  const auto pipeline = make_pipeline(graph, pp, kMicrobatches, settings.stages);
  Priced found;
  for (int at = 0; at < pp; ++at) {
    found.moments.push_back(worst_moment(graph, work, rank_step(pipeline, graph, settings, at), settings));
    double kept = 0;
    for (std::size_t u = 0; u < work.size(); ++u) {
      if (pipeline.unit_pp_coordinates()[u] == at) kept += work[u].kept_bytes.front();
    }
    found.kept.push_back(kept);
  }
  return found;
}

TEST(StepMemory, GpipeKeepsAllMicrobatchesAndOneForwardOneBackwardAsManyAsStagesFollow) {
  const auto all = priced(settings_of("pp=3", "gpipe"));
  const auto few = priced(settings_of("pp=3", "1f1b"));
  for (std::size_t pp = 0; pp < 2; ++pp) {  // the last one's head is done where a layer takes most
    EXPECT_EQ(all.moments[pp].activations, kMicrobatches * all.kept[pp]) << "pp " << pp;
    EXPECT_EQ(few.moments[pp].activations, static_cast<double>(3 - pp) * few.kept[pp]) << "pp " << pp;
  }
}

TEST(StepMemory, OneStageKeepsOneMicrobatchHoweverManyThereAre) {
  const auto one = priced(settings_of("dp=1", "1f1b"));
  EXPECT_LE(one.moments[0].activations, one.kept[0]);
  EXPECT_GT(one.moments[0].activations, 0.9 * one.kept[0]);
}

TEST(StepMemory, LogitsAreCountedApart) {
  const auto stages = priced(settings_of("pp=2", "gpipe"));
  constexpr double kLogits = 2 * 16 * 256 * 4;
  EXPECT_EQ(stages.moments[0].logits, 0);
  EXPECT_GE(stages.moments[1].logits, (kMicrobatches - 1) * kLogits);
  EXPECT_LE(stages.moments[1].logits, kMicrobatches * kLogits);
}

TEST(StepMemory, AnEarlyWeightGradientIsPaidWithMemory) {
  const auto whole = priced(settings_of("pp=2", "1f1b"));
  const auto apart = priced(settings_of("pp=2", "zbh1"));
  EXPECT_GT(apart.moments[1].total(), whole.moments[1].total());
}

TEST(StepMemory, RecomputingTakesLess) {
  auto settings = settings_of("pp=2", "1f1b");
  const auto none = priced(settings);
  settings.recompute = PlanRecompute::full;
  const auto full = priced(settings);
  EXPECT_LT(full.moments[0].total(), 0.7 * none.moments[0].total());
}

// Gathered parameters and full gradients come from blocks that are not given back.
TEST(StepMemory, ShardedParametersLeaveTheirBlocks) {
  auto settings = settings_of("fsdp=2", "1f1b");
  settings.data.zero = 1;
  const auto whole = priced(settings);
  settings.data.zero = 3;
  const auto sharded = priced(settings);
  EXPECT_GT(sharded.moments[0].temporary, whole.moments[0].temporary);
  EXPECT_EQ(sharded.moments[0].activations, whole.moments[0].activations);
}

}  // namespace step_memory_test
}  // namespace orthant
