// What a pipeline sends, beside every other axis, counted while it runs, against the closed forms of `plan`.
#include <gtest/gtest.h>

#include "orthant/data/loader.h"
#include "orthant/parallel/data/tied_sums.h"
#include "orthant/plan/estimate/data_state.h"
#include "orthant/plan/estimate/data_traffic.h"
#include "orthant/plan/estimate/pipeline_traffic.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/train/datasets.h"
#include "orthant/train/planned_trainer.h"
#include "trainers_on_ranks.h"
#include "training_ranks.h"

namespace orthant {
namespace pipeline_counters_test {

using Settings = std::vector<std::string>;

struct Case {
  bool llama;  // or the default configuration, trimodal
  const char* mesh;
  int zero = 0;
  Settings settings = {};
  bool bfloat16 = false;  // what products use and values travel in; the rest is float32
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  out << (one.llama ? "llama " : "trimodal ") << one.mesh << " zero " << one.zero;
  for (const auto& setting : one.settings) out << ' ' << setting;
  return out << (one.bfloat16 ? " bfloat16" : "");
}

const char* const kUntied = "model.tie_word_embeddings=false";
const char* const kSequence = "parallel.sequence_parallel=true";
const char* const kLoss = "parallel.loss_parallel=true";
const char* const kShared = "model.shared_towers=true";
const char* const kBranches =
    R"(parallel.split=[["primary.embed","primary.layers.0","primary.layers.1","primary.pooler"],)"
    R"(["secondary.embed","secondary.layers.0","secondary.layers.1","secondary.pooler","tabular"],["fusion","loss"]])";
const char* const kTwoRanks = "parallel.placement=[0,1,1]";
const char* const kLossAlone =
    R"(parallel.split=[["embed","layers.0"],["layers.1","layers.2","layers.3"],["layers.4","layers.5","head"],["loss"]])";

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& schedule : schedule_names()) {
    const auto setting = "parallel.schedule=" + schedule;
    cases.push_back({true, "pp=2", 0, {setting}});
    cases.push_back({true, "pp=3", 0, {setting, kUntied, "parallel.microbatches=3"}});
    cases.push_back({true, "pp=4", 0, {setting}});
    cases.push_back({true, "pp=2,dp=2", 0, {setting, "parallel.bucket_mb=0.01"}});
    cases.push_back({true, "pp=2,fsdp=2", 3, {setting}});
    cases.push_back({true, "pp=2,tp=2", 0, {setting, kSequence, kLoss}});
    cases.push_back({false, "pp=2", 0, {setting}});
    cases.push_back({false, "pp=4", 0, {setting, kShared}});
  }
  const std::vector<Case> others = {
      {true, "pp=2", 0, {"parallel.microbatches=1"}},
      {true, "pp=4", 0, {"parallel.microbatches=2", kUntied, "parallel.recompute=full"}},
      {true, "pp=4", 0, {kLossAlone}},
      {true, "pp=2", 0, {"parallel.placement=[1,0]"}},
      {true, "pp=2", 0, {R"(model.freeze=["embed.*","layers.0.*"])", kUntied}},
      {true, "pp=3", 0, {}, /*bfloat16=*/true},
      {true, "pp=2,dp=2", 0, {"parallel.comm_hook=bf16"}},
      {true, "pp=2,fsdp=2", 0, {kUntied}},
      {true, "pp=2,fsdp=2", 1, {}},
      {true, "pp=3,fsdp=2", 2, {}},
      {true, "pp=2,fsdp=2", 2, {"parallel.accumulate=sharded", "parallel.schedule=zbh1"}},
      {true, "pp=2,fsdp=2", 3, {"parallel.accumulate=sharded"}},
      {true, "pp=2,fsdp=3", 3, {"parallel.microbatches=2", "parallel.limit_all_gathers=1"}, /*bfloat16=*/true},
      {true, "pp=2,fsdp=2", 3, {"parallel.keep_gathered=true", "parallel.schedule=gpipe"}},
      {true, "pp=2,dp=2,fsdp=2", 1, {"parallel.microbatches=2"}},
      {true, "pp=2,dp=2,fsdp=2", 3, {"parallel.microbatches=2", kUntied}},
      {true, "pp=2,tp=2", 0, {}},
      {true, "pp=3,tp=2", 0, {kSequence, "parallel.regather=true", "parallel.recompute=full"}},
      {true,
       "pp=2,tp=3",
       0,
       {kSequence, "model.num_attention_heads=3", "model.num_key_value_heads=3", "model.hidden_size=18"}},
      {true, "pp=2,tp=4", 0, {kSequence, kUntied}},
      {true, "pp=4,tp=2", 0, {kSequence, kLoss, kLossAlone}},
      {true, "pp=2,dp=2,tp=2", 0, {}},
      {true, "pp=2,fsdp=2,tp=2", 3, {kSequence, "parallel.microbatches=2"}},
      {false, "pp=2", 0, {kBranches, kTwoRanks}},
      {false, "pp=2", 0, {kBranches, kTwoRanks, kShared}},
      {false, "pp=3", 0, {kBranches, kShared, "parallel.schedule=zbh1"}},
      {false, "pp=3", 0, {kBranches, R"(model.freeze=["primary.*"])"}},
      {false, "pp=2,tp=2", 0, {kBranches, kTwoRanks, kShared, kSequence}},
      {false, "pp=2,tp=2", 0, {kBranches, kTwoRanks, kSequence, "parallel.regather=true"}},
      {false, "pp=2,fsdp=2", 2, {kBranches, kTwoRanks, kShared}},
  };
  cases.insert(cases.end(), others.begin(), others.end());
  return cases;
}

class PipelineCounters : public testing::TestWithParam<Case> {};

RunConfig config_of(const Case& one) {
  const auto pp = Mesh::parse(one.mesh).degree(Axis::pp);
  Settings settings = {"mesh.pp=" + std::to_string(pp), "data.samples=96", "train.global_batch_size=24",
                       "train.steps=20", "parallel.microbatches=4"};
  if (one.llama) {
    settings.insert(settings.end(), {"model.num_hidden_layers=6", "model.hidden_size=16", "model.intermediate_size=20",
                                     "model.num_attention_heads=4", "model.num_key_value_heads=2",
                                     "model.vocab_size=53", "data.sequence_length=7"});
  }
  settings.insert(settings.end(), one.settings.begin(), one.settings.end());
  const std::string file = one.llama ? ORTHANT_SOURCE_DIR "/configs/llama_tiny.json" : "";
  auto config = small_config(file, settings, {one.mesh, one.zero});
  if (one.bfloat16) config.trainer.precision = {DType::float32, DType::bfloat16, DType::float32};
  return config;
}

template <typename Entry>
void expect_entry(const Entry& expected, const comm::Counters& before, const comm::Counters& after, comm::Op op) {
  expect_calls(expected.calls, expected.bytes, before, after, op);
}

// The groups of a rank, and what they have counted.
class Counted {
 public:
  Counted(const GraphSpec& graph, const RunConfig& config, const DataSettings& settings)
      : communicator_(*config.trainer.communicator), replica_axes_(copy_axes(settings.policy, config.mesh)) {
    for (const auto& request : tied_groups(graph, config.mesh, settings.unit_pp_coordinates))
      tied.add(*this, request.name);
    for (const auto& request : copy_groups(graph, config.mesh)) copies.add(*this, request.name);
    values = of(Axis::pp, comm::Purpose::activations);
    gradients = of(Axis::pp, comm::Purpose::gradients);
    pp = communicator_.counters(Axis::pp);
    if (config.mesh.degree(Axis::tp) > 1) {
      tp = of(Axis::tp, comm::Purpose::activations);
      partials = of(Axis::tp, comm::Purpose::gradients);
    }
    shards = communicator_.counters(Axis::fsdp);
    if (!replica_axes_.empty()) replicas = communicator_.counters(replica_axes_);
  }

  // Of several groups together.
  struct Sum {
    comm::Counters::Entry all_reduces;

    void add(const Counted& counted, const std::string& subgroup) {
      const auto entry = counted.communicator_.subgroup(subgroup).counters().of(comm::Op::all_reduce);
      all_reduces.calls += entry.calls;
      all_reduces.bytes += entry.bytes;
    }
  };

  comm::Counters values, gradients, pp, tp, partials, shards, replicas;
  Sum tied, copies;

 private:
  comm::Counters of(Axis axis, comm::Purpose purpose) const { return communicator_.group(axis, purpose).counters(); }

  const comm::Communicator& communicator_;
  AxisSet replica_axes_;
};

void expect_pipeline(const PipelineTraffic& expected, const Counted& before, const Counted& after) {
  expect_entry(expected.sent_values, before.values, after.values, comm::Op::send);
  expect_entry(expected.received_values, before.values, after.values, comm::Op::receive);
  expect_entry(expected.sent_gradients, before.gradients, after.gradients, comm::Op::send);
  expect_entry(expected.received_gradients, before.gradients, after.gradients, comm::Op::receive);
  // Nothing else travels over pp.
  EXPECT_EQ(after.pp.total().calls - before.pp.total().calls,
            expected.sent_values.calls + expected.received_values.calls + expected.sent_gradients.calls +
                expected.received_gradients.calls);
  EXPECT_EQ(after.tied.all_reduces.calls - before.tied.all_reduces.calls, expected.tied.calls);
  EXPECT_EQ(after.tied.all_reduces.bytes - before.tied.all_reduces.bytes, expected.tied.bytes);
}

void expect_tensor(const TpTraffic& expected, const Counted& before, const Counted& after) {
  expect_entry(expected.sum, before.tp, after.tp, comm::Op::all_reduce);
  expect_entry(expected.gather, before.tp, after.tp, comm::Op::all_gather);
  expect_entry(expected.scatter, before.tp, after.tp, comm::Op::reduce_scatter);
  expect_entry(expected.partials, before.partials, after.partials, comm::Op::all_reduce);
  EXPECT_EQ(after.copies.all_reduces.calls - before.copies.all_reduces.calls, expected.copies.calls);
  EXPECT_EQ(after.copies.all_reduces.bytes - before.copies.all_reduces.bytes, expected.copies.bytes);
}

void expect_data(const DataTraffic& expected, const Counted& before, const Counted& after, const DataPolicy& policy) {
  if (policy.shards_state()) {
    expect_entry(expected.gather, before.shards, after.shards, comm::Op::all_gather);
    expect_entry(expected.scatter, before.shards, after.shards, comm::Op::reduce_scatter);
  }
  expect_entry(expected.sum, before.replicas, after.replicas, comm::Op::all_reduce);
}

void expect_state(const Trainer& trainer, const DataSettings& settings) {
  const auto state = data_state(trainer.graph(), settings);
  const auto& store = trainer.parameters();
  EXPECT_EQ(store.kept_bytes(), state.parameters + state.compute + state.gradients);
  std::int64_t optimizer = 0;
  for (std::size_t s = 0; s < trainer.optimizer().state_names().size(); ++s) {
    for (std::size_t b = 0; b < store.buffers().size(); ++b) {
      const auto& tensor = trainer.optimizer().state(s, b);
      if (tensor.defined()) optimizer += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  EXPECT_EQ(optimizer, state.optimizer);
  const auto peaks = data_peaks(trainer.graph(), settings, trainer.actions());
  EXPECT_EQ(store.gathered_peak(), peaks.gathered);
  EXPECT_EQ(store.gradients_peak(), peaks.gradients);
}

void check_rank(const RunConfig& ranked) {
  auto config = ranked;
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();
  const auto& graph = trainer->graph();
  const auto settings = data_settings(trainer->pipeline(), graph, config.mesh, trainer->options());
  SCOPED_TRACE("rank " + std::to_string(rank_of(config)));
  const Counted before(graph, config, settings);
  trainer->step(loader->next()).get();
  const Counted after(graph, config, settings);
  expect_pipeline(pipeline_traffic(graph, settings), before, after);
  expect_data(data_traffic(graph, settings, trainer->actions()), before, after, settings.policy);
  if (config.mesh.degree(Axis::tp) > 1) {
    expect_tensor(tp_traffic(graph, tensor_settings(trainer->pipeline(), graph, config.mesh, trainer->options())),
                  before, after);
  }
  expect_state(*trainer, settings);
}

// Over shared memory: a group is made in a fraction of the time that Gloo takes.
TEST_P(PipelineCounters, TrafficAndStateAreThoseOfTheClosedForms) {
  const auto config = config_of(GetParam());
  const auto groups = trainer_groups(run_spec(config), config.mesh, config.trainer);
  comm::run_thread_ranks(config.mesh.world_size(), [&](int rank, comm::Store store) {
    auto mine = config;
    mine.trainer.communicator =
        std::make_shared<comm::Communicator>(config.mesh, rank, store, test::quick_comm(), groups.axes, groups.subsets);
    check_rank(mine);
  });
}

INSTANTIATE_TEST_SUITE_P(Pipelines, PipelineCounters, testing::ValuesIn(all_cases()));

// What the cases above rely on.
TEST(PipelineCounters, CasesHaveTiedParametersAndCutValues) {
  const auto traffic = [](const Case& one) {
    const auto config = config_of(one);
    const auto spec = run_spec(config);
    return pipeline_traffic(
        spec, data_settings(trainer_pipeline(spec, config.mesh, config.trainer), spec, config.mesh, config.trainer));
  };
  EXPECT_EQ(traffic({true, "pp=2", 0, {kUntied}}).tied.calls, 0);
  EXPECT_EQ(traffic({true, "pp=2"}).tied.calls, 1);
  EXPECT_EQ(traffic({false, "pp=2", 0, {kBranches, kTwoRanks}}).tied.calls, 0);
  EXPECT_EQ(traffic({false, "pp=2", 0, {kBranches, kTwoRanks, kShared}}).tied.calls, 1);
  EXPECT_GT(traffic({false, "pp=4", 0, {kShared}}).tied.bytes, 0);
  const auto whole = traffic({true, "pp=2,tp=2"}).sent_values.bytes;
  EXPECT_LT(traffic({true, "pp=2,tp=2", 0, {kSequence}}).sent_values.bytes, whole);
}

}  // namespace pipeline_counters_test
}  // namespace orthant
