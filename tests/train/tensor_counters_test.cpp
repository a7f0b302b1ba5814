// What tensor parallelism sends, counted while it runs, against the closed form of `plan`.
#include <gtest/gtest.h>

#include "orthant/data/loader.h"
#include "orthant/models/llama/config.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/train/datasets.h"
#include "orthant/train/planned_trainer.h"
#include "training_ranks.h"

namespace orthant {
namespace tensor_counters_test {

struct Case {
  const char* file;  // in configs/; empty: the default configuration, trimodal
  const char* mesh;
  std::vector<std::string> settings = {};
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  out << one.file << ' ' << one.mesh;
  for (const auto& setting : one.settings) out << ' ' << setting;
  return out;
}

const char* const kSequence = "parallel.sequence_parallel=true";
const char* const kLoss = "parallel.loss_parallel=true";
const char* const kRegather = "parallel.regather=true";
const char* const kLlama = "llama_tiny.json";
const char* const kMixtral = "mixtral_tiny.json";

const std::vector<Case> kCases = {
    {kLlama, "tp=2"},
    {kLlama, "tp=2", {kLoss}},
    {kLlama, "tp=2", {kSequence}},
    {kLlama, "tp=2", {kSequence, kLoss}},
    {kLlama, "tp=2", {kSequence, kLoss, kRegather}},
    {kLlama, "tp=4", {kSequence, kLoss}},
    {kLlama, "tp=4"},
    {kLlama, "tp=2", {"parallel.microbatches=3", kLoss}},
    {kLlama, "tp=2", {"parallel.microbatches=2", "parallel.recompute=full", kSequence, kRegather}},
    {kLlama, "tp=2,dp=2", {kSequence}},
    {kLlama, "tp=2,fsdp=2", {"parallel.zero=3", "parallel.microbatches=2"}},
    {kLlama, "tp=2", {"model.tie_word_embeddings=true", kSequence, kLoss}},
    {kLlama, "tp=2", {"model.freeze=[\"embed.*\", \"layers.0.*\"]", kSequence, kRegather}},
    {kLlama, "tp=2", {"parallel.plan={\"mlp\":\"replicate\"}", kSequence}},
    {kLlama, "tp=2", {"model.num_key_value_heads=1", kSequence}},
    {kLlama, "tp=2,fsdp=2", {"parallel.microbatches=2", "parallel.accumulate=sharded", kSequence}},
    {kLlama,
     "tp=2",
     {"model.freeze=[\"layers.1.attention.wo.weight\", \"layers.0.*\", \"embed.*\"]", "model.attention_bias=true",
      kSequence}},
    {kMixtral, "tp=2"},
    {kMixtral, "tp=2", {kSequence, kRegather, "parallel.recompute=full"}},
    {kMixtral, "tp=2,ep=2", {kSequence, "parallel.microbatches=2"}},
    {"", "tp=2", {}},
    {"", "tp=2", {kSequence, kRegather}},
};

class TensorCounters : public testing::TestWithParam<Case> {};

RunConfig config_of(const Case& one) {
  std::vector<std::string> settings = {"data.samples=48", "train.global_batch_size=12", "train.steps=20"};
  const std::string file = *one.file == 0 ? "" : std::string(ORTHANT_SOURCE_DIR "/configs/") + one.file;
  if (!file.empty()) {
    settings.insert(settings.end(), {"model.num_hidden_layers=3", "model.hidden_size=16", "model.intermediate_size=20",
                                     "model.num_attention_heads=4", "model.num_key_value_heads=2",
                                     "model.vocab_size=53", "data.sequence_length=7"});
  }
  settings.insert(settings.end(), one.settings.begin(), one.settings.end());
  return small_config(file, settings, {one.mesh, 3});
}

void check_rank(const RunConfig& ranked) {
  auto config = ranked;
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();
  const auto expected =
      tp_traffic(trainer->graph(), tensor_settings(trainer->pipeline(), trainer->graph(), config.mesh, config.trainer));
  const auto& communicator = *config.trainer.communicator;
  const auto activations = communicator.group(Axis::tp, comm::Purpose::activations);
  const auto gradients = communicator.group(Axis::tp, comm::Purpose::gradients);
  const auto before = activations.counters();
  const auto gradients_before = gradients.counters();
  std::optional<comm::Group> copies;
  comm::Counters copies_before;
  for (const auto& request : copy_groups(trainer->graph(), config.mesh)) {
    copies = communicator.subgroup(request.name);
    copies_before = copies->counters();
  }
  trainer->step(loader->next()).get();
  const auto& after = activations.counters();
  expect_calls(expected.sum.calls, expected.sum.bytes, before, after, comm::Op::all_reduce);
  expect_calls(expected.gather.calls, expected.gather.bytes, before, after, comm::Op::all_gather);
  expect_calls(expected.scatter.calls, expected.scatter.bytes, before, after, comm::Op::reduce_scatter);
  expect_calls(expected.partials.calls, expected.partials.bytes, gradients_before, gradients.counters(),
               comm::Op::all_reduce);
  if (copies)
    expect_calls(expected.copies.calls, expected.copies.bytes, copies_before, copies->counters(), comm::Op::all_reduce);
  if (!copies) {
    EXPECT_EQ(expected.copies.calls, 0);
  }
}

TEST_P(TensorCounters, TrafficIsThatOfTheClosedForm) {
  on_ranks(config_of(GetParam()), check_rank);
}

INSTANTIATE_TEST_SUITE_P(Settings, TensorCounters, testing::ValuesIn(kCases));

}  // namespace tensor_counters_test
}  // namespace orthant
