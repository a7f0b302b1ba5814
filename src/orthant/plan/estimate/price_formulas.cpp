// Memory and traffic of a published implementation, by the closed forms of its stack.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "orthant/base/error.h"
#include "orthant/plan/estimate/estimate_parts.h"
#include "orthant/plan/estimate/stage_cut.h"
#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace {

// The ranks over which zero cuts: those of fsdp, or of dp on a mesh without it, and those of cp, which hold the same.
int shards_of(const PlanSettings& settings) {
  const auto& mesh = settings.mesh;
  const int data = mesh.degree(Axis::fsdp) > 1 ? mesh.degree(Axis::fsdp) : mesh.degree(Axis::dp);
  return data * mesh.degree(Axis::cp);
}

// Experts are held once per ep group: their replicas are fewer.
int expert_shards_of(const PlanSettings& settings) {
  const auto& mesh = settings.mesh;
  return std::max(shards_of(settings) * mesh.degree(Axis::tp) / mesh.degree(Axis::ep), 1);
}

// Parameters of a pp coordinate, a tied one once.
struct Held {
  double dense = 0;
  double experts = 0;
  double largest_unit = 0;
  double tied = 0;  // that another pp coordinate has too
};

class CoordinatePricer {
 public:
  CoordinatePricer(const Stack& stack, const PlanSettings& settings, const Hardware& hardware,
                   const PricedStages& stages, int pp)
      : stack_(stack), settings_(settings), hardware_(hardware), stages_(stages), pp_(pp) {
    bool has_embedding = false;
    for (std::size_t stage = 0; stage < stages.map.units.size(); ++stage) {
      if (stages.map.pp_coordinates[stage] != pp) continue;
      for (const int u : stages.map.units[stage]) {
        const auto& unit = stages.work[static_cast<std::size_t>(u)];
        has_embedding |= unit.role == UnitRole::embedding;
        held_.dense += unit.parameters - unit.expert_parameters - (has_embedding ? unit.borrowed : 0);
        if (!has_embedding) held_.tied += unit.borrowed;
        held_.experts += unit.expert_parameters;
        held_.largest_unit = std::max(held_.largest_unit, unit.parameters);
      }
    }
    // The head's table is the embedding's: its owner sums it as well.
    const bool head_elsewhere = stages.map.pp_coordinates.back() != pp && stages.map.pp_coordinates.front() == pp;
    if (head_elsewhere) held_.tied = stages.work.back().borrowed;
  }

  PpMemory memory() const {
    const int zero = settings_.data.zero;
    const auto bytes = [&](double per_parameter, bool cut) {
      const double shards = cut ? shards_of(settings_) : 1;
      const double expert_shards = cut ? expert_shards_of(settings_) : 1;
      return static_cast<std::int64_t>(per_parameter * (held_.dense / shards + held_.experts / expert_shards));
    };
    PpMemory memory;
    memory.parameters = bytes(stack_.parameter_bytes, zero >= 3);
    memory.gradients = bytes(gradient_bytes(), zero >= 2);
    memory.optimizer = bytes(stack_.optimizer_bytes, zero >= 1);
    add_step(memory);
    if (zero >= 3) memory.temporary += static_cast<std::int64_t>(whole_bytes());
    return memory;
  }

  PpTraffic traffic() const {
    PpTraffic all;
    add_data(all);
    const auto stages = span_of(settings_.mesh, {Axis::pp}, hardware_.cards_per_node);
    if (stages.ranks > 1) {
      const double gradient = held_.tied * bytes_of(settings_.gradients);
      exchange(all.tied, ExchangeKind::all_reduce, gradient, tied_span(stages));
    }
    const double m = static_cast<double>(settings_.microbatches());
    for (std::size_t stage = 0; stage < stages_.map.units.size(); ++stage) {
      if (stages_.map.pp_coordinates[stage] != pp_) continue;
      for (const int u : stages_.map.units[stage]) add_exchanges(all, stages_.work[static_cast<std::size_t>(u)], m);
      const auto& last = stages_.work[static_cast<std::size_t>(stages_.map.units[stage].back())];
      const bool sends_on = stage + 1 < stages_.map.units.size() && stages_.map.pp_coordinates[stage + 1] != pp_;
      const bool sends_back = stage > 0 && stages_.map.pp_coordinates[stage - 1] != pp_;
      const int sent = (sends_on ? 1 : 0) + (sends_back ? 1 : 0);
      all.pp.calls += static_cast<std::int64_t>(m * sent);
      const auto& first_input =
          stage > 0 ? stages_.work[static_cast<std::size_t>(stages_.map.units[stage].front()) - 1] : last;
      all.pp.bytes += static_cast<std::int64_t>(
          m * ((sends_on ? last.output_bytes : 0) + (sends_back ? first_input.output_bytes : 0)));
    }
    return all;
  }

  double updated() const {
    const bool cut = settings_.data.zero >= 1;
    return held_.dense / (cut ? shards_of(settings_) : 1) + held_.experts / (cut ? expert_shards_of(settings_) : 1);
  }

 private:
  // With zero 3, from a step's first use of a unit to its last.
  bool stays_whole() const {
    return settings_.data.keep_gathered || (stack_.keeps_gathered && settings_.mesh.degree(Axis::pp) > 1);
  }

  // Parameters and gradients that are whole for a while.
  double whole_bytes() const {
    const auto value = static_cast<double>(bytes_of(settings_.compute));
    const auto gradient = static_cast<double>(bytes_of(settings_.gradients));
    if (stays_whole()) {
      return (value + gradient) * (held_.dense + held_.experts);
    }
    return (stack_.whole_units * value + stack_.whole_gradients * gradient) * held_.largest_unit;
  }

  double gradient_bytes() const { return bytes_of(settings_.gradients) + stack_.extra_gradient_bytes; }

  // Activations of what is in flight, by the table that runs.
  void add_step(PpMemory& memory) const {
    double kept = 0, logits = 0, worst = -1;
    const auto mode = static_cast<std::size_t>(settings_.recompute);
    for (const auto& action : stages_.table.actions[static_cast<std::size_t>(pp_)]) {
      double of_stage = 0, logits_of_stage = 0, deferred = 0, besides = 0;
      for (const int u : stages_.map.units[static_cast<std::size_t>(action.stage)]) {
        const auto& unit = stages_.work[static_cast<std::size_t>(u)];
        of_stage += unit.kept_bytes.at(mode);
        logits_of_stage += unit.logits_bytes;
        deferred += unit.deferred_bytes;
        const bool forward = action.kind == StageKind::F;
        besides = std::max(besides, forward ? unit.forward_bytes : unit.backward_bytes + unit.remade_bytes);
      }
      if (action.kind == StageKind::F) {
        kept += of_stage;
        logits += logits_of_stage;
      }
      if (action.kind == StageKind::W) besides = 0;
      if (kept + logits + besides > worst) {
        worst = kept + logits + besides;
        memory.activations = static_cast<std::int64_t>(kept);
        memory.logits = static_cast<std::int64_t>(logits);
        memory.temporary = static_cast<std::int64_t>(besides);
      }
      if (action.kind == StageKind::B || action.kind == StageKind::BW) {
        kept -= of_stage;
        logits -= logits_of_stage;
      }
      if (action.kind == StageKind::B) kept += deferred;
      if (action.kind == StageKind::W) kept -= deferred;
    }
  }

  // `share`: of the link's speed that such calls reach.
  void exchange(AxisTraffic& traffic, ExchangeKind kind, double bytes, const Span& span, double times = 1,
                double share = 1) const {
    if (span.ranks == 1 || bytes == 0) return;
    traffic.calls += static_cast<std::int64_t>(times);
    traffic.bytes += static_cast<std::int64_t>(times * bytes);
    traffic.seconds += times * exchange_seconds(kind, bytes / share, span, hardware_);
  }

  void add_data(PpTraffic& all) const {
    const auto& mesh = settings_.mesh;
    const auto span = [&](AxisSet axes) { return span_of(mesh, axes, hardware_.cards_per_node); };
    const bool has_shards = mesh.degree(Axis::fsdp) > 1;
    const int zero = settings_.data.zero;
    // Experts have fewer replicas: a sum over them is priced as the dense one of as many bytes.
    const double parameters = held_.dense + held_.experts / mesh.degree(Axis::ep);
    const double gradients = parameters * bytes_of(settings_.gradients);
    const auto value_bytes = zero == 3 ? static_cast<double>(bytes_of(settings_.compute)) : stack_.parameter_bytes;
    const double values = parameters * value_bytes;
    const auto cut_axes = has_shards ? AxisSet{Axis::fsdp, Axis::cp} : AxisSet{Axis::dp, Axis::cp};
    if (zero == 0) {
      exchange(all.dp, ExchangeKind::all_reduce, gradients, span({Axis::dp, Axis::fsdp, Axis::cp}));
      return;
    }
    auto& cut = has_shards ? all.fsdp : all.dp;
    const double units = std::max<double>(static_cast<double>(stages_.work.size()) / mesh.degree(Axis::pp), 1);
    const double m = stays_whole() ? 1 : static_cast<double>(settings_.microbatches());
    const double gathers = zero == 3 && !stays_whole() ? 2 * m : 1;
    const double scatters = settings_.data.accumulate_sharded ? static_cast<double>(settings_.microbatches()) : 1;
    const double calls = units * (zero == 3 ? stack_.gathers_per_unit : 1);
    const double share = zero == 3 ? stack_.gather_share : 1;
    exchange(cut, ExchangeKind::all_gather, values / calls, span(cut_axes), gathers * calls, share);
    exchange(cut, ExchangeKind::reduce_scatter, gradients / calls, span(cut_axes), scatters * calls, share);
    if (has_shards) exchange(all.dp, ExchangeKind::all_reduce, gradients / shards_of(settings_), span({Axis::dp}));
  }

  void add_exchanges(PpTraffic& all, const UnitWork& unit, double m) const {
    for (const auto* list : {&unit.forward_exchanges, &unit.backward_exchanges, &unit.remade_exchanges}) {
      for (const auto& one : *list) {
        auto& traffic = one.axis == Axis::tp ? all.tp : one.axis == Axis::cp ? all.cp : all.ep;
        traffic.calls += static_cast<std::int64_t>(m);
        traffic.bytes += static_cast<std::int64_t>(m * one.bytes);
      }
    }
  }

  const Stack& stack_;
  const PlanSettings& settings_;
  const Hardware& hardware_;
  const PricedStages& stages_;
  int pp_;
  Held held_;
};

}  // namespace

PricedStages price_formulas(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings,
                            const Hardware& hardware) {
  const int pp = settings.mesh.degree(Axis::pp);
  const int stages_per_pp = pp > 1 ? virtual_stages(settings.stages.schedule, settings.stages.virtual_stages) : 1;
  PricedStages stages;
  stages.work = formula_work(shape, stack, settings);
  auto schedule = pp > 1 ? make_schedule(settings.stages.schedule, pp, settings.stages.virtual_stages,
                                         static_cast<int>(settings.microbatches()))
                         : make_schedule("1f1b", 1, 0, static_cast<int>(settings.microbatches()));
  const auto split = settings.split == "auto" ? "even" : settings.split;
  stages.map = chain_stages(layers_per_stage(split, shape.layers, pp * stages_per_pp), schedule.pp_coordinates);
  stages.table = std::move(schedule.table);
  stages.edges = chain_edges(stages.table.num_stages);
  for (int coordinate = 0; coordinate < pp; ++coordinate) {
    const CoordinatePricer pricer(stack, settings, hardware, stages, coordinate);
    stages.memory.push_back(pricer.memory());
    stages.traffic.push_back(pricer.traffic());
    stages.updated.push_back(pricer.updated());
  }
  return stages;
}

}  // namespace orthant
