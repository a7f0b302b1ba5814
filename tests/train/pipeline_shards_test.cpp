// Stages whose parameters are sharded or replicated: every policy of the data axes has under stages the bits it has
// without them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "train/branching_model.h"
#include "train/trainers_on_ranks.h"

namespace orthant {
namespace pipeline_shards_test {

using test::Outcome;

struct Policy {
  const char* data;  // axes besides pp
  int zero = 0;
  bool accumulate_sharded = false;
  bool grouped = false;  // units share calls
  const char* schedule = "1f1b";
  friend std::ostream& operator<<(std::ostream& out, const Policy& one) {
    return out << one.data << " zero " << one.zero << (one.accumulate_sharded ? " accumulates shards" : "")
               << (one.grouped ? " grouped" : "") << " " << one.schedule;
  }
};

// Row lengths differ between replicas without padding to one length; users of a table are added before replicas on one
// stage and after them on several, so that none is shared here.
TrainerOptions options_of(const Policy& policy, DType dtype) {
  auto options = test::branching_options(3);
  options.precision = {dtype, dtype, dtype};
  options.policy.zero = policy.zero;
  options.policy.accumulate_sharded = policy.accumulate_sharded;
  if (policy.grouped) options.units = {.kind = UnitGrouping::Kind::min_params, .min_params = 150};
  options.stages.schedule = policy.schedule;
  return options;
}

Outcome outcome_of(const std::string& mesh, const GraphSpec& graph, const TrainerOptions& options) {
  std::mutex mutex;
  std::vector<Outcome> found;
  test::on_trainers(graph, test::branching_units, Mesh::parse(mesh), options, [&](Trainer& trainer) {
    auto outcome = test::train_steps(trainer, test::branching_batch(), 3);
    const auto state = test::whole_state(trainer);  // its copies are equal
    const std::lock_guard lock(mutex);
    found.push_back(std::move(outcome));
  });
  for (const auto& other : found) EXPECT_EQ(other, found.front()) << "ranks disagree";
  return found.front();
}

class PipelineShards : public testing::TestWithParam<Policy> {};

TEST_P(PipelineShards, HaveTheBitsOfOneStage) {
  const auto graph = test::branching_spec(/*users=*/1);
  auto options = options_of(GetParam(), DType::float32);
  const auto expected = outcome_of(GetParam().data, graph, options);
  for (const int pp : {2, 3}) {
    options.stages.split = test::branching_split(pp);
    EXPECT_EQ(outcome_of(std::string(GetParam().data) + ",pp=" + std::to_string(pp), graph, options), expected)
        << "pp=" << pp;
  }
}

// In float64: what is added in another order differs in the last bits only.
TEST_P(PipelineShards, WithATableThatStagesShareAreThoseOfOneRank) {
  auto graph = test::branching_spec(/*users=*/3);
  for (auto& value : graph.values) {
    if (value.dtype == DType::float32) value.dtype = DType::float64;
  }
  auto options = options_of(GetParam(), DType::float64);
  const auto expected = outcome_of("dp=1", graph, options_of({.data = "dp=1"}, DType::float64));
  options.stages.split = test::branching_split(2);
  const auto found = outcome_of(std::string(GetParam().data) + ",pp=2", graph, options);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12 * expected.losses[i]) << "step " << i;
    EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-12 * expected.norms[i]) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, PipelineShards,
                         testing::Values(Policy{.data = "dp=2"}, Policy{.data = "fsdp=2", .zero = 1},
                                         Policy{.data = "fsdp=2", .zero = 2},
                                         Policy{.data = "fsdp=2", .zero = 3, .schedule = "gpipe"},
                                         Policy{.data = "fsdp=2", .zero = 3, .schedule = "zbh1"},
                                         Policy{.data = "fsdp=2", .zero = 3, .grouped = true},
                                         Policy{.data = "fsdp=2", .zero = 2, .accumulate_sharded = true},
                                         Policy{.data = "dp=2,fsdp=2", .zero = 3, .accumulate_sharded = true}));

// The first stage has nothing to learn: no gradient goes to it.
TEST(PipelineShards, AFrozenStageHasTheBitsOfOneRank) {
  auto graph = test::branching_spec(/*users=*/1);
  for (const char* unit : {"embed", "first", "left"}) {
    for (auto& parameter : graph.units[static_cast<std::size_t>(graph.unit_index(unit))].parameters) {
      parameter.trainable = false;
    }
  }
  auto options = test::branching_options(4);
  const auto expected = outcome_of("dp=1", graph, options);
  for (const char* schedule : {"gpipe", "1f1b", "zbh1"}) {
    options.stages = {.schedule = schedule, .split = test::branching_split(3)};
    EXPECT_EQ(outcome_of("pp=3", graph, options), expected) << schedule;
  }
  test::on_trainers(graph, test::branching_units, Mesh::parse("pp=3"), options, [](Trainer& trainer) {
    const auto gradients = std::ranges::count(trainer.actions(), ActionKind::receive_gradient, &Action::kind);
    EXPECT_EQ(gradients > 0, trainer.rank() == 1) << "rank " << trainer.rank();
  });
}

TEST(PipelineShards, WholeGradientsAreThoseOfOneRank) {
  const auto graph = test::branching_spec(/*users=*/3);
  std::map<std::string, at::Tensor> expected;
  auto options = test::branching_options(3);
  const auto gradients = [](Trainer& trainer) {
    trainer.gradients(trainer.own_rows(test::branching_batch())).get();
    const auto found = whole_gradients(trainer);
    EXPECT_TRUE(found.copies_equal);
    return found.tensors;
  };
  test::on_trainers(graph, test::branching_units, Mesh(), options, [&](Trainer& t) { expected = gradients(t); });
  options.stages.split = test::branching_split(4);
  test::on_trainers(graph, test::branching_units, Mesh::parse("pp=4"), options, [&](Trainer& trainer) {
    const auto found = gradients(trainer);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  });
}

}  // namespace pipeline_shards_test
}  // namespace orthant
