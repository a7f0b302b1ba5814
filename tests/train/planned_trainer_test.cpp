// A trainer in the planner's words: the lists that are priced are those that run.
#include "orthant/train/planned_trainer.h"

#include <gtest/gtest.h>

#include <string>

#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"

namespace orthant {
namespace planned_trainer_test {

TEST(PlannedTrainer, PricesTheListsThatRun) {
  for (const char* layout : {"dp=2", "fsdp=2,tp=2", "pp=2,fsdp=2", "pp=2,dp=2,fsdp=2,tp=2"}) {
    for (const int zero : {1, 3}) {
      TrainerOptions options;
      options.microbatches = 4;
      options.policy.zero = zero;
      options.precision.compute = DType::bfloat16;
      options.optimizer.kind = "sgd";
      options.units.kind = UnitGrouping::Kind::min_params;
      const auto mesh = Mesh::parse(layout);
      const auto graph = trainer_graph(build_spec(LlamaConfig(), {.rows = 2}), mesh, options);
      const auto pipeline = trainer_pipeline(graph, mesh, options);
      const auto steps = rank_steps(pipeline, graph, mesh, options);
      const auto runs = data_settings(pipeline, graph, mesh, options);
      EXPECT_EQ(steps.front().data, runs) << layout;
      EXPECT_EQ(steps.front().actions, step_actions(pipeline, graph, mesh, options)) << layout;
    }
  }
}

}  // namespace planned_trainer_test
}  // namespace orthant
