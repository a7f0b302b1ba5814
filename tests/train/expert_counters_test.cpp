// What experts make ranks of ep send each other, counted while it runs, against the closed form of `plan`, given the
// loads that the step reports.
#include <gtest/gtest.h>

#include <numeric>

#include "orthant/base/ranges.h"
#include "orthant/data/loader.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/train/datasets.h"
#include "orthant/train/planned_trainer.h"
#include "training_ranks.h"

namespace orthant {
namespace expert_counters_test {

// All ranks of a stage are one group of ep, so that the loads of the whole step are those of the group.
struct Case {
  const char* model;
  const char* mesh;
  std::vector<std::string> settings = {};
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  out << one.model << ' ' << one.mesh;
  for (const auto& setting : one.settings) out << ' ' << setting;
  return out;
}

const char* const kSequence = "parallel.sequence_parallel=true";

const std::vector<Case> kCases = {
    {"mixtral", "dp=2,ep=2"},
    {"mixtral", "dp=4,ep=4", {"parallel.microbatches=3"}},
    {"mixtral", "fsdp=2,ep=2", {"parallel.recompute=full", "parallel.microbatches=2"}},
    {"mixtral", "tp=2,ep=2", {kSequence, "parallel.recompute=selective"}},
    {"qwen2_moe", "fsdp=2,tp=2,ep=4", {kSequence}},
    {"qwen2_moe", "cp=2,ep=2", {"parallel.recompute=full"}},
    {"qwen2_moe", "dp=2,ep=2", {"mesh.pp=2", "parallel.microbatches=2", "parallel.schedule=zbh1"}},
};

RunConfig config_of(const Case& one) {
  std::vector<std::string> settings = {"data.samples=48",
                                       "train.global_batch_size=12",
                                       "train.steps=20",
                                       std::string("model.kind=") + one.model,
                                       "model.num_hidden_layers=2",
                                       "model.hidden_size=24",
                                       "model.intermediate_size=20",
                                       "model.num_attention_heads=6",
                                       "model.num_key_value_heads=2",
                                       "model.vocab_size=53",
                                       "model.num_experts_per_tok=2",
                                       "data.kind=tokens",
                                       "data.sequence_length=32"};
  if (one.model == std::string("mixtral")) {
    settings.emplace_back("model.num_local_experts=7");
  } else {
    settings.insert(settings.end(), {"model.num_experts=7", "model.moe_intermediate_size=10",
                                     "model.shared_expert_intermediate_size=9", "model.mlp_only_layers=[0]"});
  }
  settings.insert(settings.end(), one.settings.begin(), one.settings.end());
  return small_config("", settings, {one.mesh, 3});
}

// Per unit the rows that experts of a rank took.
std::vector<std::int64_t> taken_by(const GraphSpec& graph, const std::vector<double>& loads, int index) {
  std::vector<std::int64_t> taken;
  auto begin = loads.begin();
  for (const auto& unit : graph.units) {
    const auto experts = unit.num_experts();
    const Range own = balanced_range(experts, graph.expert_degree, index);
    taken.push_back(static_cast<std::int64_t>(std::accumulate(begin + own.begin, begin + own.end, 0.0)));
    if (experts > 0) begin += experts + 1;
  }
  return taken;
}

void check_rank(const RunConfig& ranked) {
  auto config = ranked;
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();
  const auto group = config.trainer.communicator->subgroup(kTokenGroup);
  const auto before = group.counters();
  const auto numbers = trainer->step(loader->next()).get();
  const auto expected =
      ep_traffic(trainer->graph(), tensor_settings(trainer->pipeline(), trainer->graph(), config.mesh, config.trainer),
                 taken_by(trainer->graph(), numbers.expert_loads, group.index()));
  expect_calls(expected.calls, expected.bytes, before, group.counters(), comm::Op::all_to_all);
  const double slots = 12 * 32 * 2 * (trainer->graph().units.at(1).num_experts() > 0 ? 2 : 1);
  EXPECT_EQ(std::accumulate(numbers.expert_loads.begin(), numbers.expert_loads.end(), 0.0), slots);
}

class ExpertCounters : public testing::TestWithParam<Case> {};

TEST_P(ExpertCounters, TrafficIsThatOfTheClosedForm) {
  on_ranks(config_of(GetParam()), check_rank);
}

INSTANTIATE_TEST_SUITE_P(Settings, ExpertCounters, testing::ValuesIn(kCases));

}  // namespace expert_counters_test
}  // namespace orthant
