// A plan from its priced stages: does it fit, how long is a step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/plan/estimate/estimate_parts.h"
#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace {

constexpr double kSecondsPerDay = 86400;

// What our runtime alone can be told.
void check_own_settings(const PlanSettings& settings, const Stack& stack) {
  if (stack.runs_here) return;
  const auto refuse = [&](bool asked, const char* option) {
    if (!asked) return;
    throw ConfigError(fmt::format("{}: the closed forms of --stack {} do not know it", option, stack.name),
                      {.remedy = "leave it out, or use --stack orthant"});
  };
  refuse(settings.join_head_and_loss != JoinHeadAndLoss::automatic, "--join-head-and-loss");
  refuse(settings.loss_chunk_rows > 0, "--loss-chunk-rows");
  refuse(settings.deterministic, "--deterministic");
  refuse(settings.splits_master, "--master bf16_remainder");
}

void check_model(const PlanModel& model, const PlanSettings& settings, const Stack& stack) {
  check_sizes(settings);
  check_own_settings(settings, stack);
  const auto longest = model.longest_sequence();
  if (longest > 0 && settings.sequence > longest) {
    throw ConfigError(fmt::format("a sequence of {}: {} has {} positions", settings.sequence, model.name, longest),
                      {.remedy = fmt::format("set --seq to at most {}", longest)});
  }
  if (stack.runs_here && !model.config) {
    throw ConfigError(fmt::format("{}: orthant trains no such model; it is a shape on paper", model.name),
                      {.remedy = "price it with another --stack, as megatron"});
  }
  if (!stack.runs_here && !model.shape) {
    throw ConfigError(
        fmt::format("{} is no single chain of layers: --stack {} has no closed forms for it", model.name, stack.name),
        {.remedy = "use --stack orthant"});
  }
}

// Seconds of the stages' actions for a microbatch, and of what they exchange over tp, cp and ep meanwhile.
struct StageTimes {
  StageCosts costs;
  std::vector<Waits> exchanged;  // per stage: of F, B and W together
  std::vector<double> sent;      // per stage: of the messages it sends, both ways
  std::vector<double> blocked;   // of these, what nothing hides
};

StageTimes stage_times(const PricedStages& stages, const PlanSettings& settings, const Hardware& hardware,
                       const Stack& stack) {
  const auto spans = spans_of(settings.mesh, hardware.cards_per_node);
  const auto pp = span_of(settings.mesh, {Axis::pp}, hardware.cards_per_node);
  StageTimes times;
  for (std::size_t stage = 0; stage < stages.map.units.size(); ++stage) {
    StageCost cost{0, 0, 0, 0};
    Waits exchanged;
    double blocked = 0;
    for (const int u : stages.map.units[stage]) {
      const auto seconds = unit_seconds(stages.work[static_cast<std::size_t>(u)], settings, spans, hardware);
      cost.forward += seconds.forward;
      cost.inputs += seconds.inputs;
      cost.weights += seconds.weights;
      exchanged += seconds.exchanged;
    }
    const auto sends_to = [&](int other) {
      return other >= 0 && other < stages.map.num_stages() &&
             stages.map.pp_coordinates[static_cast<std::size_t>(other)] != stages.map.pp_coordinates[stage];
    };
    // What a stage writes; its gradient comes back the same way.
    const auto message = [&](int writer) {
      const auto& last =
          stages.work[static_cast<std::size_t>(stages.map.units[static_cast<std::size_t>(writer)].back())];
      return pp.ranks > 1 ? message_seconds(last.output_bytes, pp, hardware) : 0;
    };
    const int index = static_cast<int>(stage);
    const double onwards = sends_to(index + 1) ? message(index) : 0;
    const double back = sends_to(index - 1) ? message(index - 1) : 0;
    if (stack.overlaps_messages) {
      cost.send = message(index);
    } else {
      cost.forward += onwards;
      cost.inputs += back;
      blocked = onwards + back;
    }
    times.sent.push_back(onwards + back);
    times.costs.push_back(cost);
    times.exchanged.push_back(exchanged);
    times.blocked.push_back(blocked);
  }
  return times;
}

// What the collectives of data parallelism add to a step of a pp coordinate: what nothing hides, and what the card
// loses while they travel beside products.
double exposed_data(PpTraffic& traffic, double window, double computing, const PlanSettings& settings,
                    const Hardware& hardware, const Stack& stack) {
  double exposed = 0;
  const auto expose = [&](AxisTraffic& axis, AxisSet axes, double hides) {
    const auto& link = link_of(span_of(settings.mesh, axes, hardware.cards_per_node), hardware);
    const HiddenTime beside = overlap(axis.seconds, stack.overlaps_gradients ? hides : 0, link);
    axis.exposed_seconds = beside.exposed;
    exposed += beside.exposed;
    return hides - beside.hidden;
  };
  // With zero 3 parameters travel beside every forward and backward.
  const double left = expose(traffic.fsdp, {Axis::fsdp}, settings.data.zero >= 3 ? computing : window);
  const double rest = expose(traffic.dp, copy_axes(settings.data, settings.mesh), std::min(left, window));
  expose(traffic.cp, {Axis::cp}, rest);
  traffic.tied.exposed_seconds = traffic.tied.seconds;
  traffic.tp.exposed_seconds += traffic.tp.seconds;  // sums of partial gradients
  return exposed + traffic.tied.seconds + traffic.tp.seconds;
}

template <typename Value>
Value sum_at(const std::vector<Value>& values, const std::vector<int>& pp_coordinates, int pp) {
  Value sum{};
  for (std::size_t stage = 0; stage < values.size(); ++stage) {
    if (pp_coordinates[stage] == pp) sum += values[stage];
  }
  return sum;
}

// Of a step: what a pp coordinate waits for over tp, cp and ep.
void add_waits(PpTraffic& traffic, const Waits& waits, double microbatches) {
  const auto add = [&](AxisTraffic& axis, double seconds) {
    axis.seconds += microbatches * seconds;
    axis.exposed_seconds += microbatches * seconds;
  };
  add(traffic.tp, waits.tp);
  add(traffic.cp, waits.cp);
  add(traffic.ep, waits.ep);
}

// Fills in time, and the seconds of what travels.
void add_time(Plan& plan, const PricedStages& stages, const StageTimes& times, const Hardware& hardware,
              const Stack& stack) {
  const auto& settings = plan.settings;
  const auto simulation = simulate(stages.table, stages.edges, times.costs);
  const double m = static_cast<double>(settings.microbatches());
  const auto busiest = static_cast<int>(std::ranges::max_element(simulation.busy) - simulation.busy.begin());
  double tail = 0;
  for (int pp = 0; pp < static_cast<int>(plan.traffic.size()); ++pp) {
    auto& traffic = plan.traffic[static_cast<std::size_t>(pp)];
    double last_backward = 0;
    for (std::size_t stage = 0; stage < times.costs.size(); ++stage) {
      if (stages.map.pp_coordinates[stage] == pp)
        last_backward += times.costs[stage].inputs + times.costs[stage].weights;
    }
    const double busy = simulation.busy[static_cast<std::size_t>(pp)];
    const Waits waits = sum_at(times.exchanged, stages.map.pp_coordinates, pp);
    const double data = exposed_data(traffic, last_backward, busy - m * waits.total(), settings, hardware, stack);
    add_waits(traffic, waits, m);
    const double moved = stack.optimizer_moved * stages.updated[static_cast<std::size_t>(pp)];
    const double optimizer = hardware.updating_seconds(moved);
    traffic.pp.seconds = m * sum_at(times.sent, stages.map.pp_coordinates, pp);
    traffic.pp.exposed_seconds = m * sum_at(times.blocked, stages.map.pp_coordinates, pp);
    if (data + optimizer < tail) continue;
    tail = data + optimizer;
    plan.time.exposed_communication = data;
    plan.time.optimizer = optimizer;
  }
  const double exchanged = m * (sum_at(times.exchanged, stages.map.pp_coordinates, busiest).total() +
                                sum_at(times.blocked, stages.map.pp_coordinates, busiest));
  const double busy = simulation.busy[static_cast<std::size_t>(busiest)];
  plan.time.compute = busy - exchanged;
  plan.time.exposed_communication += exchanged;
  plan.time.bubble = simulation.makespan - busy;
  plan.time.step = simulation.makespan + tail;
}

// `flops`: of the model for one sequence.
void add_speed(Plan& plan, double flops, const Hardware& hardware) {
  const auto& settings = plan.settings;
  const double cards = settings.mesh.world_size();
  const double rows = static_cast<double>(settings.global_batch);
  plan.tokens_per_second_per_gpu = rows * static_cast<double>(settings.sequence) / plan.time.step / cards;
  plan.model_tflops_per_gpu = rows * flops / plan.time.step / cards / 1e12;
  plan.mfu = plan.model_tflops_per_gpu * 1e12 / hardware.peak_flops;
}

void add_reserve(Plan& plan, const Hardware& hardware, const Stack& stack) {
  const double share = stack.runs_here ? hardware.reserve_share : stack.reserve_share;
  const double fixed = stack.runs_here ? static_cast<double>(hardware.reserve_bytes) : stack.reserve_bytes;
  for (auto& memory : plan.memory) {
    memory.reserve = static_cast<std::int64_t>(fixed + share * static_cast<double>(memory.total()));
  }
  // A published figure counts tensors alone; the card must hold the rest too.
  const auto besides = stack.runs_here ? 0 : hardware.reserve_bytes;
  const auto peak = plan.peak_bytes() + besides;
  plan.fits = peak <= hardware.memory_bytes;
  if (plan.fits) return;
  plan.why_not = fmt::format("pp {} needs {}{}, a {} has {}", plan.worst_stage(), format_bytes(plan.peak_bytes()),
                             besides > 0 ? fmt::format(" and {} for the runtime", format_bytes(besides)) : "",
                             hardware.name, format_bytes(hardware.memory_bytes));
}

}  // namespace

ExchangeSpans spans_of(const Mesh& mesh, int cards_per_node) {
  const auto span = [&](Axis axis) { return span_of(mesh, {axis}, cards_per_node); };
  Span expert;  // runs of neighbouring ranks of a stage
  expert.ranks = mesh.degree(Axis::ep);
  expert.per_node = std::gcd(expert.ranks, cards_per_node);
  return {span(Axis::tp), span(Axis::cp), expert};
}

Span tied_span(const Span& stages) {
  return {2, stages.per_node == stages.ranks ? 2 : 1};
}

double calls_seconds(ExchangeKind kind, double bytes, double calls, const Span& span, const Hardware& hardware) {
  return calls == 0 || span.ranks == 1 ? 0 : calls * exchange_seconds(kind, bytes / calls, span, hardware);
}

int Plan::worst_stage() const {
  const auto worst = std::ranges::max_element(memory, {}, &PpMemory::total);
  return static_cast<int>(worst - memory.begin());
}

std::int64_t Plan::peak_bytes() const {
  return memory.at(static_cast<std::size_t>(worst_stage())).total();
}

Plan assemble(PricedStages stages, const PlanSettings& settings, const Hardware& hardware, const Stack& stack,
              double flops) {
  Plan plan;
  plan.settings = settings;
  plan.virtual_stages = std::max(stages.map.num_stages() / settings.mesh.degree(Axis::pp), 1);
  plan.memory = std::move(stages.memory);
  plan.traffic = std::move(stages.traffic);
  plan.stage_pp_coordinates = stages.map.pp_coordinates;
  for (const auto& units : stages.map.units) {
    auto& names = plan.stages.emplace_back();
    for (const int u : units) names.push_back(stages.work[static_cast<std::size_t>(u)].name);
  }
  const auto times = stage_times(stages, settings, hardware, stack);
  plan.costs = times.costs;
  add_time(plan, stages, times, hardware, stack);
  plan.table = std::move(stages.table);
  plan.edges = std::move(stages.edges);
  add_speed(plan, flops, hardware);
  add_reserve(plan, hardware, stack);
  return plan;
}

Plan estimate(const PlanModel& model, const PlanSettings& settings, const Hardware& hardware, const Stack& stack,
              ProgramCache* programs) {
  check_model(model, settings, stack);
  auto stages = stack.runs_here ? price_runtime(*model.config, settings, hardware, programs)
                                : price_formulas(*model.shape, stack, settings, hardware);
  return assemble(std::move(stages), settings, hardware, stack,
                  model_flops(model, settings.sequence, stack.causal_flops, programs));
}

Simulation simulate_plan(const Plan& plan) {
  return simulate(plan.table, plan.edges, plan.costs);
}

Budget budget_of(const Plan& plan, const Hardware& hardware, double tokens) {
  const double cards = plan.settings.mesh.world_size();
  const double seconds = tokens / (plan.tokens_per_second_per_gpu * cards);
  return {seconds / kSecondsPerDay, seconds / 3600 * cards * hardware.dollars_per_hour};
}

}  // namespace orthant
