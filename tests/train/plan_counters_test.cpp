// A plan against the run it is of: bytes of state, calls and payload bytes per axis are those that the store, the
// optimizer and the communicator of real ranks count, exactly. Random models, meshes and settings from fixed seeds;
// ORTHANT_EXHAUSTIVE=1 takes ten times as many.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <random>

#include "orthant/base/error.h"
#include "orthant/data/loader.h"
#include "orthant/parallel/data/tied_sums.h"
#include "orthant/plan/estimate/data_state.h"
#include "orthant/train/datasets.h"
#include "orthant/train/run_estimate.h"
#include "training_ranks.h"

namespace orthant {
namespace plan_counters_test {

constexpr int kQuickRuns = 36;
constexpr int kAllRuns = 360;

// What can be run: model, mesh and settings drawn until the configuration is accepted. The same for the same number.
class Draw {
 public:
  explicit Draw(int number) : random_(static_cast<std::uint64_t>(number)) {
    do {
      draw();
    } while (!is_accepted());
  }

  std::string text() const { return fmt::format("{}", fmt::join(settings_, " ")); }

  RunConfig config() const { return read_run_config(load_run_document("", settings_)); }

 private:
  template <typename Choice>
  Choice one_of(const std::vector<Choice>& choices) {
    return choices[random_() % choices.size()];
  }
  bool chance(double share) { return std::uniform_real_distribution<>()(random_) < share; }
  void set(const std::string& key, const std::string& value) { settings_.push_back(key + "=" + value); }

  void draw() {
    settings_.clear();
    set("train.steps", "20");
    draw_model();
    const int replicas = draw_mesh();
    const int microbatches = one_of<int>({1, 2, 3, 4});
    set("parallel.microbatches", std::to_string(microbatches));
    set("train.global_batch_size", std::to_string(replicas * microbatches * one_of<int>({1, 2})));
    draw_policies();
    draw_types();
  }

  void draw_model() {
    const auto kind = one_of<std::string>({"llama", "qwen3", "mistral", "gpt2", "bert", "encoder_lm", "trimodal"});
    const int layers = one_of<int>({2, 3, 5, 7});
    auto sizes = fmt::format(R"("hidden_size":24,"num_attention_heads":6,"intermediate_size":{},"vocab_size":{})",
                             one_of<int>({20, 24, 31}), one_of<int>({53, 72}));
    if (kind == "trimodal") {
      set("data", R"({"kind":"random","sequence_length":7,"secondary_length":5})");
      const bool shared = chance(0.3);
      set("model", fmt::format(R"({{"kind":"trimodal","preset":"trimodal-tiny","shared_towers":{},)"
                               R"("primary":{{{},"num_hidden_layers":{}}},"secondary":{{{},"num_hidden_layers":{}}}}})",
                               shared, sizes, layers, sizes, shared ? layers : 2));
    } else {
      const auto preset = kind == "encoder_lm" ? "encoder-lm" : kind;
      const bool is_llama = kind == "llama" || kind == "qwen3" || kind == "mistral";
      if (is_llama) sizes += fmt::format(R"(,"num_key_value_heads":{})", one_of<int>({1, 2, 3, 6}));
      if ((is_llama || kind == "gpt2") && chance(0.5)) {
        sizes += fmt::format(R"(,"tie_word_embeddings":{})", chance(0.5));
      }
      set("data", fmt::format(R"({{"kind":"{}","sequence_length":7}})", kind == "bert" ? "random" : "tokens"));
      set("model",
          fmt::format(R"({{"kind":"{}","preset":"{}-tiny",{},"num_hidden_layers":{}}})", kind, preset, sizes, layers));
    }
    set("data.samples", "96");
    if (kind != "trimodal" && chance(0.5)) {
      set("train.join_head_and_loss", "on");
      set("train.loss_chunk_rows", one_of<std::string>({"0", "3", "7"}));
    }
    if (chance(0.2)) set("model.freeze", kind == "trimodal" ? R"(["primary.*"])" : R"(["layers.0.*","layers.1.*"])");
  }

  // Up to 8 ranks, their number's prime factors dealt to the axes. Returns dp x fsdp.
  int draw_mesh() {
    std::map<std::string, int> degrees = {{"pp", 1}, {"dp", 1}, {"fsdp", 1}, {"tp", 1}};
    int rest = one_of<int>({1, 2, 3, 4, 4, 6, 6, 8, 8, 8});
    for (const int prime : {2, 3}) {
      for (; rest % prime == 0; rest /= prime) degrees[one_of<std::string>({"pp", "dp", "fsdp", "tp"})] *= prime;
    }
    for (const auto& [axis, degree] : degrees) set("mesh." + axis, std::to_string(degree));
    if (degrees["pp"] > 1) {
      set("parallel.schedule", one_of<std::string>({"gpipe", "1f1b", "interleaved", "zbh1", "zbv"}));
    }
    return degrees["dp"] * degrees["fsdp"];
  }

  void draw_policies() {
    set("parallel.zero", std::to_string(one_of<int>({0, 1, 2, 3})));
    set("parallel.recompute", one_of<std::string>({"none", "selective", "full"}));
    const std::vector<std::pair<std::string, std::vector<std::string>>> others = {
        {"accumulate", {"sharded"}},   {"keep_gathered", {"true"}},     {"limit_all_gathers", {"1", "3"}},
        {"bucket_mb", {"0", "0.002"}}, {"sequence_parallel", {"true"}}, {"loss_parallel", {"true"}},
        {"regather", {"true"}},        {"comm_hook", {"bf16"}},         {"units", {R"({"min_params":3000})"}},
    };
    for (const auto& [key, values] : others) {
      if (chance(0.3)) set("parallel." + key, one_of(values));
    }
  }

  void draw_types() {
    const bool narrow = chance(0.3);
    set("precision.params", "float32");
    set("precision.compute", narrow ? "bfloat16" : "float32");
    set("precision.reduce", "float32");
    if (chance(0.3)) {
      set("optimizer.kind", "sgd");
      set("optimizer.momentum", one_of<std::string>({"0", "0.9"}));
    }
    if (narrow && chance(0.5)) set("precision.master", "bf16_remainder");
  }

  bool is_accepted() const {
    try {
      check_trainable(config());
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> settings_;
};

using Entry = comm::Counters::Entry;

Entry operator+(const Entry& a, const Entry& b) {
  return {a.calls + b.calls, a.bytes + b.bytes};
}

// What a rank has counted, in the plan's words.
struct CountedTraffic {
  Entry tp, pp, dp, fsdp, tied;

  CountedTraffic(const Trainer& trainer, const comm::Communicator* ranks, const DataSettings& data) {
    if (ranks == nullptr) return;
    const auto& mesh = data.mesh;
    tp = ranks->counters(Axis::tp).total();
    for (const auto& request : copy_groups(trainer.graph(), mesh)) tp = tp + subgroup(*ranks, request.name);
    pp = ranks->counters(Axis::pp).of(comm::Op::send);
    if (mesh.degree(Axis::pp) > 1) {
      for (const auto& request : tied_groups(trainer.graph(), mesh, data.unit_pp_coordinates)) {
        tied = tied + subgroup(*ranks, request.name);
      }
    }
    if (const auto axes = copy_axes(data.policy, mesh); !axes.empty()) {
      dp = ranks->counters(axes).of(comm::Op::all_reduce);
    }
    const auto shards = ranks->counters(Axis::fsdp);
    fsdp = shards.of(comm::Op::all_gather) + shards.of(comm::Op::reduce_scatter);
  }

  static Entry subgroup(const comm::Communicator& ranks, const std::string& name) {
    return ranks.subgroup(name).counters().of(comm::Op::all_reduce);
  }
};

void expect_grown(const AxisTraffic& planned, const Entry& before, const Entry& after, const char* axis) {
  EXPECT_EQ(after.calls - before.calls, planned.calls) << axis;
  EXPECT_EQ(after.bytes - before.bytes, planned.bytes) << axis;
}

void expect_traffic(const PpTraffic& planned, const CountedTraffic& before, const CountedTraffic& after) {
  expect_grown(planned.tp, before.tp, after.tp, "tp");
  expect_grown(planned.pp, before.pp, after.pp, "pp");
  expect_grown(planned.dp, before.dp, after.dp, "dp");
  expect_grown(planned.fsdp, before.fsdp, after.fsdp, "fsdp");
  expect_grown(planned.tied, before.tied, after.tied, "tied");
}

void expect_state(const PpMemory& planned, const Trainer& trainer) {
  const auto& store = trainer.parameters();
  const auto& precision = trainer.options().precision;
  // The copy that is updated counts as the optimizer's where products read another one that stays.
  const bool split = precision.master == MasterKind::bf16_remainder;
  const bool apart = split || (!store.policy().shards_parameters() && precision.params != precision.compute);
  std::int64_t gradients = 0;
  std::int64_t states = 0;
  std::int64_t masters = 0;
  for (std::size_t b = 0; b < store.buffers().size(); ++b) {
    const auto& buffer = *store.buffers()[b];
    const auto& master = buffer.master();
    const auto& beside = split ? master.remainder() : master.whole();
    if (apart) masters += static_cast<std::int64_t>(beside.nbytes());
    if (!buffer.trainable()) continue;
    const auto uses = static_cast<std::int64_t>(buffer.layout().users.size());
    gradients += store.policy().shards_gradients() ? static_cast<std::int64_t>(buffer.owned_gradient().nbytes())
                                                   : uses * buffer.layout().size * bytes_of(precision.reduce);
    for (std::size_t s = 0; s < trainer.optimizer().state_names().size(); ++s) {
      states += static_cast<std::int64_t>(trainer.optimizer().state(s, b).nbytes());
    }
  }
  EXPECT_EQ(planned.gradients, gradients);
  EXPECT_EQ(planned.optimizer, states + masters);
  EXPECT_EQ(planned.parameters, store.kept_bytes() - gradients - masters);
}

// A plan is of a pp coordinate's first ranks; memory of the last tp rank, which has the largest parts.
void check_rank(const RunConfig& ranked) {
  auto config = ranked;
  const auto plan = estimate_run(config, find_hardware("cpu"));
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();
  const auto settings = data_settings(trainer->pipeline(), trainer->graph(), config.mesh, trainer->options());
  const auto place = config.mesh.coordinate(rank_of(config));
  const auto pp = static_cast<std::size_t>(place[Axis::pp]);
  const CountedTraffic before(*trainer, config.trainer.communicator.get(), settings);
  trainer->step(loader->next()).get();
  const CountedTraffic after(*trainer, config.trainer.communicator.get(), settings);
  if (place[Axis::tp] == 0) expect_traffic(plan.traffic.at(pp), before, after);
  if (place[Axis::tp] + 1 == config.mesh.degree(Axis::tp)) expect_state(plan.memory.at(pp), *trainer);
  const auto& store = trainer->parameters();
  EXPECT_EQ(store.bytes() - store.kept_bytes(), data_pool(trainer->graph(), settings, trainer->actions()));
}

TEST(PlanCounters, StateAndTrafficOfRandomRunsAreThoseOfTheirPlans) {
  const char* const all = std::getenv("ORTHANT_EXHAUSTIVE");
  const int runs = all != nullptr && std::string(all) == "1" ? kAllRuns : kQuickRuns;
  for (int number = 0; number < runs; ++number) {
    const Draw drawn(number);
    SCOPED_TRACE(fmt::format("draw {}: {}", number, drawn.text()));
    on_ranks(drawn.config(), [&](const RunConfig& config) {
      SCOPED_TRACE(fmt::format("draw {} rank {}: {}", number, rank_of(config), drawn.text()));
      check_rank(config);
    });
    if (HasFailure()) return;
  }
}

}  // namespace plan_counters_test
}  // namespace orthant
