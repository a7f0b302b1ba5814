// Head and loss as one unit, against two: the same training on every mesh, and less memory.
#include <ATen/ATen.h>

#include "base/error_text.h"
#include "orthant/layout/rows.h"
#include "orthant/train/datasets.h"
#include "orthant/train/memory.h"
#include "training_ranks.h"

namespace orthant {
namespace head_loss_test {

constexpr int kSteps = 3;

RunConfig with_join(RunConfig config, JoinHeadAndLoss join, std::int64_t chunk_rows = 7) {
  config.trainer.join_head_and_loss = join;
  config.trainer.loss_chunk_rows = chunk_rows;
  return config;
}

struct Training {
  std::vector<double> losses;
  std::vector<double> norms;
};

Training train(RunConfig config) {
  Training found;
  const auto trainer = make_trainer(config);
  const auto data = make_run_data(config);
  const auto loader = make_loader(config, data, 0);
  for (int step = 0; step < kSteps; ++step) {
    const auto result = trainer->step(loader->next()).get();
    found.losses.push_back(result.loss);
    found.norms.push_back(result.grad_norm);
  }
  return found;
}

void expect_near(const Training& actual, const Training& expected) {
  for (int step = 0; step < kSteps; ++step) {
    const auto place = static_cast<std::size_t>(step);
    EXPECT_NEAR(actual.losses[place], expected.losses[place], 1e-11) << "loss of step " << step;
    EXPECT_NEAR(actual.norms[place], expected.norms[place], 1e-10) << "norm of step " << step;
  }
}

TEST(HeadLoss, TrainsAsTwoUnitsDoOnEveryMesh) {
  const auto expected = train(with_join(tiny_llama({"dp=1"}), JoinHeadAndLoss::off));
  for (const auto& mesh : kMeshes) {
    for (const bool sharded : {false, true}) {
      auto joined = with_join(tiny_llama(mesh), JoinHeadAndLoss::on);
      joined.trainer.microbatches = 12 / num_replicas(joined.mesh);  // of one row
      joined.trainer.policy.accumulate_sharded = sharded && mesh.zero >= 2;
      if (sharded != joined.trainer.policy.accumulate_sharded) continue;
      SCOPED_TRACE(case_name(mesh) + (sharded ? " accumulated in shards" : ""));
      on_ranks(joined, [&](const RunConfig& config) { expect_near(train(config), expected); });
    }
  }
}

TEST(HeadLoss, NeverHasWholeLogits) {
  auto& allocator = install_counting_allocator();
  const auto peak_of = [&](JoinHeadAndLoss join) {
    auto config = with_join(small_config(ORTHANT_SOURCE_DIR "/configs/llama_tiny.json",
                                         {"model.vocab_size=20000", "data.sequence_length=32", "data.samples=48",
                                          "train.steps=20", "train.global_batch_size=12"},
                                         {"dp=1"}),
                            join, /*chunk_rows=*/32);
    const auto trainer = make_trainer(config);
    const auto data = make_run_data(config);
    const auto loader = make_loader(config, data, 0);
    trainer->step(loader->next()).get();
    const auto batch = loader->next();
    const auto before = allocator.live_bytes();
    allocator.reset_peak();
    trainer->step(batch).get();
    return allocator.peak_bytes() - before;
  };
  constexpr std::int64_t kLogits = 12 * 32 * 20000 * 8;
  const auto apart = peak_of(JoinHeadAndLoss::off);
  const auto joined = peak_of(JoinHeadAndLoss::on);
  EXPECT_GT(apart, kLogits);
  EXPECT_LT(joined, kLogits / 2);
}

TEST(HeadLoss, AnEvaluationThatAsksForLogitsIsRefused) {
  auto config = with_join(tiny_llama({"dp=1"}), JoinHeadAndLoss::on);
  const auto trainer = make_trainer(config);
  const auto data = make_run_data(config);
  const auto fields = make_loader(config, data, 0)->next().fields;
  EXPECT_EQ(trainer->evaluate(fields, {"loss"}).size(), 1U);
  EXPECT_EQ(error_text<ConfigError>([&] { trainer->evaluate(fields, {"logits"}); }),
            "an evaluation asks for logits, which no unit of graph \"llama\" writes\n"
            "  fix: ask for a value of the graph; logits exist with train.join_head_and_loss=off");
}

TEST(HeadLoss, StagesThatCutTheLossOffKeepItApartUnlessJoiningIsAskedFor) {
  auto config = tiny_llama({"dp=1"});
  config.trainer.stages.split = {{"embed", "layers.0", "layers.1", "head"}, {"loss"}};
  config.trainer.device = at::kCUDA;  // where they would be joined
  EXPECT_EQ(run_spec(config).units.back().name, "loss");
  config.trainer.stages.split = {{"embed", "layers.0"}, {"layers.1", "head", "loss"}};
  EXPECT_EQ(run_spec(config).units.back().name, "head");
  EXPECT_EQ(trainer_pipeline(run_spec(config), config.mesh, config.trainer).map.units.back().size(), 2U);
}

}  // namespace head_loss_test
}  // namespace orthant
