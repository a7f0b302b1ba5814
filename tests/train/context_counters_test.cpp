// What context parallelism sends, counted while it runs, against the closed form of `plan`.
#include <gtest/gtest.h>

#include "orthant/data/loader.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/train/datasets.h"
#include "orthant/train/planned_trainer.h"
#include "training_ranks.h"

namespace orthant {
namespace context_counters_test {

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

const char* const kRing = "parallel.context=ring";
const char* const kAllToAll = "parallel.context=all_to_all";
const char* const kGather = "parallel.context=gather";
const char* const kMicrobatches = "parallel.microbatches=3";

const std::vector<Case> kCases = {
    {"llama", "cp=2", {kRing}},
    {"llama", "cp=3", {kRing, kMicrobatches}},
    {"llama", "cp=4", {kRing, "parallel.recompute=selective"}},
    {"llama", "cp=2,tp=2", {kRing, "parallel.sequence_parallel=true"}},
    {"llama", "cp=3", {kAllToAll, kMicrobatches}},
    {"llama", "cp=2,tp=2", {kAllToAll, "parallel.recompute=full"}},
    {"llama", "cp=4", {kGather}},
    {"llama", "cp=2,fsdp=2", {kGather, "parallel.recompute=full", kMicrobatches}},
    {"mistral", "cp=4", {kRing, "model.sliding_window=3"}},
    {"mixtral", "cp=3", {kRing, kMicrobatches}},
    {"encoder_lm", "cp=3", {kRing}},
    {"encoder_lm", "cp=3", {kAllToAll}},
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
                                       "model.vocab_size=53",
                                       "data.kind=tokens",
                                       "data.sequence_length=29"};
  if (one.model != std::string("encoder_lm")) settings.emplace_back("model.num_key_value_heads=2");
  settings.insert(settings.end(), one.settings.begin(), one.settings.end());
  return small_config("", settings, {one.mesh, 3});
}

void check_rank(const RunConfig& ranked) {
  auto config = ranked;
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();
  const auto group = config.trainer.communicator->group(Axis::cp, comm::Purpose::activations);
  const auto before = group.counters();
  trainer->step(loader->next()).get();
  const auto& after = group.counters();
  const Exchanged expected =
      cp_traffic(trainer->graph(), tensor_settings(trainer->pipeline(), trainer->graph(), config.mesh, config.trainer),
                 group.index());
  const auto expect = [&](const Exchanged::Entry& entry, comm::Op op) {
    expect_calls(entry.calls, entry.bytes, before, after, op);
  };
  expect(expected.sent, comm::Op::send);
  expect(expected.received, comm::Op::receive);
  expect(expected.gather, comm::Op::all_gather);
  expect(expected.scatter, comm::Op::reduce_scatter);
  expect(expected.all_to_all, comm::Op::all_to_all);
  expect(expected.sum, comm::Op::all_reduce);
  EXPECT_GT(expected.sent.calls + expected.gather.calls + expected.all_to_all.calls, 0);
}

class ContextCounters : public testing::TestWithParam<Case> {};

TEST_P(ContextCounters, TrafficIsThatOfTheClosedForm) {
  on_ranks(config_of(GetParam()), check_rank);
}

INSTANTIATE_TEST_SUITE_P(Settings, ContextCounters, testing::ValuesIn(kCases));

}  // namespace context_counters_test
}  // namespace orthant
