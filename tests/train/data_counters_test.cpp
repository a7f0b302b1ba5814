// What data parallelism sends and keeps, counted while it runs, against the closed forms of `plan`.
#include <gtest/gtest.h>

#include "orthant/data/loader.h"
#include "orthant/plan/estimate/data_state.h"
#include "orthant/plan/estimate/data_traffic.h"
#include "orthant/train/datasets.h"
#include "training_ranks.h"

namespace orthant {
namespace data_counters_test {

struct Case {
  const char* mesh;
  int zero;
  std::vector<std::string> settings = {};
  bool bfloat16 = false;  // what products use; the rest is float32
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  out << one.mesh << " zero " << one.zero;
  for (const auto& setting : one.settings) out << ' ' << setting;
  if (one.bfloat16) out << " bfloat16";
  return out;
}

const std::vector<Case> kCases = {
    {"dp=2", 0},
    {"dp=3", 0, {"parallel.bucket_mb=0.001"}},
    {"dp=2", 0, {"parallel.bucket_mb=0", "parallel.comm_hook=bf16"}},
    {"fsdp=2", 0},
    {"dp=2,fsdp=2", 0, {"parallel.microbatches=3"}},
    {"fsdp=2", 1},
    {"fsdp=3", 1, {"parallel.bucket_mb=0.002", "parallel.microbatches=2"}},
    {"dp=2,fsdp=2", 1},
    {"fsdp=2", 2},
    {"fsdp=4", 2, {"parallel.microbatches=3", "parallel.accumulate=sharded"}},
    {"dp=2,fsdp=2", 2, {"parallel.units={\"min_params\":2000}"}},
    {"fsdp=2", 3},
    {"fsdp=2", 1, {}, /*bfloat16=*/true},
    {"fsdp=2", 3, {}, /*bfloat16=*/true},
    {"fsdp=3", 3, {"parallel.limit_all_gathers=1"}},
    {"fsdp=3", 3, {"parallel.limit_all_gathers=3", "parallel.microbatches=2"}},
    {"fsdp=2", 3, {"parallel.microbatches=3", "parallel.accumulate=sharded"}},
    {"fsdp=2", 3, {"parallel.microbatches=2", "parallel.keep_gathered=true"}},
    {"dp=2,fsdp=2", 3, {"parallel.units={\"min_params\":2000}", "parallel.microbatches=3"}},
    {"dp=2,fsdp=2", 3, {"parallel.microbatches=3", "parallel.accumulate=sharded", "parallel.units=[[\"*\"]]"}},
    {"fsdp=2", 3, {"parallel.comm_hook=bf16"}},
    {"fsdp=2", 3, {"model.tie_word_embeddings=false"}},
    {"fsdp=2", 3, {"model.freeze=[\"layers.0.*\", \"embed.*\"]", "model.tie_word_embeddings=false"}},
    {"fsdp=2", 3, {"parallel.recompute=full"}},
    {"dp=2", 1},
    {"dp=3", 2, {"parallel.microbatches=2", "parallel.accumulate=sharded"}},
    {"dp=2", 3},
    {"tp=2,dp=2", 3},
    {"tp=2,fsdp=2", 3},
    {"tp=2,fsdp=2", 1, {"parallel.sequence_parallel=true"}},
    {"tp=2,dp=2", 0, {"parallel.bucket_mb=0.001"}},
};

class DataCounters : public testing::TestWithParam<Case> {};

RunConfig config_of(const Case& one) {
  std::vector<std::string> settings = {"model.num_hidden_layers=3",   "model.hidden_size=16",
                                       "model.intermediate_size=20",  "model.num_attention_heads=2",
                                       "model.num_key_value_heads=1", "model.vocab_size=53",
                                       "data.sequence_length=8",      "data.samples=48",
                                       "train.global_batch_size=12"};
  settings.insert(settings.end(), one.settings.begin(), one.settings.end());
  auto config = small_config(ORTHANT_SOURCE_DIR "/configs/llama_tiny.json", settings, {one.mesh, one.zero});
  if (one.bfloat16) config.trainer.precision = {DType::float32, DType::bfloat16, DType::float32};
  return config;
}

void check_rank(const RunConfig& ranked) {
  auto config = ranked;
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();
  const auto settings = data_settings(trainer->pipeline(), trainer->graph(), config.mesh, trainer->options());
  const auto expected = data_traffic(trainer->graph(), settings, trainer->actions());
  const auto& communicator = *config.trainer.communicator;
  const auto replicas = copy_axes(settings.policy, config.mesh);
  const auto shards_before = communicator.counters(Axis::fsdp);
  const auto replicas_before = communicator.counters(replicas);
  trainer->step(loader->next()).get();
  if (settings.policy.shards_state()) {
    const auto after = communicator.counters(Axis::fsdp);
    expect_calls(expected.gather.calls, expected.gather.bytes, shards_before, after, comm::Op::all_gather);
    expect_calls(expected.scatter.calls, expected.scatter.bytes, shards_before, after, comm::Op::reduce_scatter);
  }
  if (!replicas.empty()) {
    expect_calls(expected.sum.calls, expected.sum.bytes, replicas_before, communicator.counters(replicas),
                 comm::Op::all_reduce);
  }

  const auto state = data_state(trainer->graph(), settings);
  const auto& store = trainer->parameters();
  EXPECT_EQ(store.kept_bytes(), state.parameters + state.compute + state.gradients);
  std::int64_t optimizer = 0;
  for (std::size_t s = 0; s < trainer->optimizer().state_names().size(); ++s) {
    for (std::size_t b = 0; b < store.buffers().size(); ++b) {
      const auto& tensor = trainer->optimizer().state(s, b);
      if (tensor.defined()) optimizer += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  EXPECT_EQ(optimizer, state.optimizer);
  const auto peaks = data_peaks(trainer->graph(), settings, trainer->actions());
  EXPECT_EQ(store.gathered_peak(), peaks.gathered);
  EXPECT_EQ(store.gradients_peak(), peaks.gradients);
}

TEST_P(DataCounters, TrafficAndStateAreThoseOfTheClosedForms) {
  on_ranks(config_of(GetParam()), check_rank);
}

INSTANTIATE_TEST_SUITE_P(Policies, DataCounters, testing::ValuesIn(kCases));

}  // namespace data_counters_test
}  // namespace orthant
