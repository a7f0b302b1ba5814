// orthant bench pipeline: a schedule on real ranks whose stages sleep instead of computing, beside what the simulator
// says. As sleeping ranks need no core, many ranks show their true schedule on a small machine.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/ops/functions.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/train/step_profile.h"

namespace orthant::cli {
namespace {

struct Options {
  std::string schedule = "1f1b";
  int virtual_stages = 0;
  int microbatches = 8;
  double unit_ms = 30;
  int kib = 64;
  int steps = 5;
  int warmup = 2;
  bool json = false;
};

using Nap = std::chrono::duration<double>;

// Its end comes when the nap is over, counted from its making: sleeping ends late by the time a core needs to wake up,
// so that the last bit is spent awake.
class Until {
 public:
  explicit Until(Nap nap) : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(nap)) {}
  ~Until() {
    std::this_thread::sleep_until(end_ - std::chrono::microseconds(150));
    while (Clock::now() < end_) {
    }
  }
  Until(const Until&) = delete;
  Until& operator=(const Until&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

// Takes a nap for each part of its work, and passes on what it was given.
class SleepingStage : public nn::ModuleCode {
 public:
  SleepingStage(nn::Parameter& weight, Nap nap) : weight_(weight), nap_(nap) {}

  Tensors forward(const Tensors& inputs, const nn::Pass& /*pass*/) override {
    const Until end(nap_);
    if (!at::GradMode::is_enabled()) return {inputs[0].clone()};
    // Of the first stage, too, whose input needs no gradient.
    const auto x = inputs[0].requires_grad() ? inputs[0] : inputs[0].detach().requires_grad_();
    auto y = x.clone();
    y.register_hook([nap = nap_](const at::Tensor& /*gradient*/) { const Until woken(nap); });
    return {y};
  }

  void backward_weights() override {
    const Until end(nap_);
    nn::add_gradient(weight_, at::zeros_like(weight_.gradient));
  }

 private:
  nn::Parameter& weight_;
  Nap nap_;
};

class SumLoss : public nn::ModuleCode {
 public:
  Tensors forward(const Tensors& inputs, const nn::Pass& /*pass*/) override { return {inputs[0].sum()}; }
};

// A chain of stages of equal cost.
GraphSpec sleeping_graph(int stages, std::int64_t elements) {
  GraphSpec graph;
  graph.name = "sleeping stages";
  graph.batch_fields.push_back({.name = "x", .shape = {1, elements}, .differentiable = false});
  for (int s = 0; s < stages; ++s) {
    UnitSpec unit;
    unit.name = fmt::format("stage.{}", s);
    unit.kind = "sleep";
    unit.inputs = {s == 0 ? "x" : fmt::format("value.{}", s - 1)};
    unit.outputs = {fmt::format("value.{}", s)};
    unit.parameters.push_back({.name = unit.name + ".weight", .shape = {1}});
    unit.cost.forward_flops = unit.cost.input_flops = unit.cost.weight_flops = 1;
    unit.body = ops::module_body(unit, /*splits_backward=*/true);
    graph.values.push_back({.name = unit.outputs.front(), .shape = {1, elements}});
    graph.units.push_back(std::move(unit));
  }
  UnitSpec loss;
  loss.name = loss.kind = "loss";
  loss.inputs = {fmt::format("value.{}", stages - 1)};
  loss.outputs = {"loss"};
  loss.is_loss = true;
  loss.body = ops::module_body(loss);
  graph.values.push_back({.name = "loss"});
  graph.units.push_back(std::move(loss));
  return graph;
}

struct Measured {
  double seconds = 0;    // from a rank's first action to its last, the slowest rank's: median of the steps
  double simulated = 0;  // from the naps alone
  StageCosts costs;      // naps and what comes with them
};

Measured measure(const Options& options, RankContext& rank) {
  const int stages_per_pp = virtual_stages(options.schedule, options.virtual_stages);
  const int stages = rank.mesh.world_size() * stages_per_pp;
  const std::int64_t elements = std::int64_t{256} * options.kib;
  const auto graph = sleeping_graph(stages, elements);
  const Nap nap(options.unit_ms / 1e3 / stages_per_pp);
  TrainerOptions trainer_options;
  trainer_options.optimizer.kind = "sgd";
  trainer_options.microbatches = options.microbatches;
  trainer_options.stages.schedule = options.schedule;
  trainer_options.stages.virtual_stages = options.virtual_stages;
  const auto groups = trainer_groups(graph, rank.mesh, trainer_options);
  trainer_options.communicator = comm::make_communicator(rank.mesh, rank.job, rank.comm, groups.axes, groups.subsets);
  const auto make_units = [&](ParameterStore& store, Tables& tables) {
    std::vector<std::unique_ptr<Unit>> units(graph.units.size());
    for (int u = 0; u <= stages; ++u) {
      if (!store.runs(u)) continue;
      std::unique_ptr<nn::ModuleCode> code = std::make_unique<SumLoss>();
      if (u < stages) code = std::make_unique<SleepingStage>(store.unit(u)["weight"], nap);
      units[static_cast<std::size_t>(u)] = std::make_unique<Unit>(store.unit(u), tables, std::move(code));
    }
    return units;
  };
  Trainer trainer(graph, make_units, rank.mesh, trainer_options);
  Batch batch;
  batch.fields["x"] = at::ones({options.microbatches, elements});
  batch.rows = options.microbatches;
  batch.weight_sum = 1;
  for (int i = 0; i < options.warmup; ++i) trainer.step(batch).get();
  const StepProfiler profiler(trainer);
  for (int i = 0; i < options.steps; ++i) trainer.step(batch).get();
  Measured measured;
  const auto profile = profiler.result(control_group(trainer_options));
  measured.seconds = profile.list_seconds;
  measured.costs = profile.costs;
  const StageCosts costs(static_cast<std::size_t>(stages), {nap.count(), nap.count(), nap.count(), 0});
  measured.simulated = simulate(trainer.pipeline().table, chain_edges(stages), costs).makespan;
  return measured;
}

}  // namespace

int run_bench_pipeline(const Arguments& arguments, Context& context) {
  OptionParser app("A schedule whose stages sleep, on real ranks, beside the simulator's time.",
                   "orthant bench pipeline");
  Options options;
  RankOptions ranks;
  ranks.mesh = "pp=4";
  add_rank_options(app, ranks);
  const NumberRange counts(1, 100000);
  app.add_option("--schedule", options.schedule, fmt::format("{} (default 1f1b)", fmt::join(schedule_names(), ", ")));
  app.add_option("--virtual", options.virtual_stages, "stages per pp coordinate (default the schedule's own)")
      .check(counts);
  app.add_option("--microbatches", options.microbatches, "of a step (default 8)").check(counts);
  app.add_option("--unit-ms", options.unit_ms,
                 "a rank's share of a microbatch sleeps so long for each of F, B and W (default 30)")
      .check(NumberRange(0.01, 1e5));
  app.add_option("--kib", options.kib, "size of what travels between stages (default 64)").check(counts);
  app.add_option("--steps", options.steps, "steps that are timed (default 5)").check(counts);
  app.add_option("--warmup", options.warmup, "steps before them (default 2)").check(NumberRange(0, 100000));
  app.add_flag("--json", options.json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant bench pipeline --mesh pp=4 --schedule zbv --microbatches 8")) return 0;
  check_schedule_name(options.schedule);
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    if (rank.mesh.degree(Axis::pp) != rank.mesh.world_size()) {
      throw ConfigError(fmt::format("mesh {}: stages alone sleep", rank.mesh.to_string()), {.remedy = "use pp alone"});
    }
    const auto measured = measure(options, rank);
    if (!rank.is_first()) return 0;
    const double median = measured.seconds;
    const auto& first = measured.costs.front();
    if (options.json) {
      std::cout << json_text(
                       nlohmann::ordered_json{{"schedule", options.schedule},
                                              {"mesh", rank.mesh.to_string()},
                                              {"microbatches", options.microbatches},
                                              {"median_seconds", median},
                                              {"simulated_seconds", measured.simulated},
                                              {"over_simulated", median / measured.simulated},
                                              {"first_stage_seconds", {first.forward, first.inputs, first.weights}}})
                << std::endl;
    } else {
      std::cout << fmt::format("{} on {}, {} microbatches: {} a step, the simulator says {} ({:+.1f}%)\n",
                               options.schedule, rank.mesh.to_string(), options.microbatches, format_seconds(median),
                               format_seconds(measured.simulated), 100 * (median / measured.simulated - 1))
                << std::flush;
    }
    return 0;
  });
}

}  // namespace orthant::cli
