#include "orthant/plan/estimate/tensor_traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/program/exchanged.h"
#include "orthant/program/unit_programs.h"

namespace orthant {
namespace {

using Entry = TensorTraffic::Entry;

void add(Entry& entry, std::int64_t bytes, std::int64_t times = 1) {
  entry.calls += times;
  entry.bytes += times * bytes;
}

void add(TensorTraffic& total, const Exchanged& part, std::int64_t times) {
  const auto add_entry = [&](Entry& entry, const Entry& sent) {
    entry.calls += times * sent.calls;
    entry.bytes += times * sent.bytes;
  };
  add_entry(total.sum, part.sum);
  add_entry(total.gather, part.gather);
  add_entry(total.scatter, part.scatter);
}

class TrafficCounter {
 public:
  TrafficCounter(const GraphSpec& graph, const TensorSettings& settings, ProgramCache* cache)
      : graph_(graph),
        settings_(settings),
        trains_(!graph.losses().empty()),
        programs_(graph, remake_of(settings.recompute), {.training = trains_}, cache) {
    if (!graph.tensor || graph.tensor->degree != settings.degree) {
      throw InternalError(fmt::format("graph \"{}\" lies over {} tp ranks, and the settings are for {}", graph.name,
                                      graph.tensor ? graph.tensor->degree : 0, settings.degree));
    }
    for (const ValueSpec& value : graph.values) check(value);
  }

  // `gradients_alone`: without what microbatches exchange.
  TensorTraffic run(bool gradients_alone) {
    TensorTraffic traffic;
    for (std::size_t u = 0; u < graph_.units.size(); ++u) {
      if (!runs_here(static_cast<int>(u))) continue;
      const UnitSpec& unit = graph_.units[u];
      if (unit.body && !gradients_alone) add_microbatches(traffic, u);
      if (!trains_ || !programs_.facts().units[u]) continue;
      add_gradient_sums(traffic, static_cast<int>(u));
    }
    return traffic;
  }

 private:
  void check(const ValueSpec& value) const;
  void add_microbatches(TensorTraffic& traffic, std::size_t unit);
  void add_gradient_sums(TensorTraffic& traffic, int unit) const;
  std::vector<const ParameterSpec*> held_parameters(int unit) const;

  bool runs_here(int unit) const { return runs_at(unit, settings_.unit_pp_coordinates, settings_.pp); }

  const GraphSpec& graph_;
  const TensorSettings& settings_;
  const bool trains_;
  UnitPrograms programs_;
};

void TrafficCounter::check(const ValueSpec& value) const {
  const bool cut = value.tp.has_value();
  if ((value.sequence_sharded && !settings_.sequence_parallel) || (cut && !settings_.loss_parallel)) {
    throw InternalError(
        fmt::format("graph \"{}\": value {} is cut over tp, but the settings say otherwise", graph_.name, value.name));
  }
}

void TrafficCounter::add_microbatches(TensorTraffic& traffic, std::size_t unit) {
  const Program& program = programs_[unit];
  UnitSizes sizes = unit_sizes(graph_, graph_.units[unit], *graph_.tensor);
  sizes.compute = settings_.compute;
  const std::int64_t times = settings_.microbatches;
  add(traffic, exchanged(program, program.forward, sizes, settings_.statistics), times);
  if (trains_ && programs_.facts().units[unit]) add(traffic, exchanged(program, program.both, sizes), times);
}

// Trainable ones whose gradients it reduces: those of which it is the first user on this rank.
std::vector<const ParameterSpec*> TrafficCounter::held_parameters(int unit) const {
  const UnitSpec& spec = graph_.units[static_cast<std::size_t>(unit)];
  std::vector<const ParameterSpec*> held;
  for (const ParameterSpec& parameter : spec.parameters) held.push_back(&parameter);
  for (const std::string& name : spec.borrowed) {
    const auto users = graph_.users(name);
    const auto first = std::ranges::find_if(users, [&](int user) { return runs_here(user); });
    if (*first == unit) held.push_back(&graph_.parameter(name));
  }
  std::erase_if(held, [](const ParameterSpec* parameter) { return !parameter->trainable; });
  return held;
}

void TrafficCounter::add_gradient_sums(TensorTraffic& traffic, int unit) const {
  std::int64_t partial = 0;
  std::int64_t copied = 0;
  for (const ParameterSpec* parameter : held_parameters(unit)) {
    if (parameter->partial_under_sequence_parallel) partial += num_elements(parameter->shape);
    if (!parameter->tp) continue;
    const LocalParameter local = local_parameter(*parameter, settings_.degree, 0);
    for (std::size_t b = 0; b < local.boxes.size(); ++b) {
      const std::int64_t elements = num_elements(local.boxes[b].lengths);
      if (local.holders[b].size() == settings_.degree) {
        partial += elements;  // a copy on every rank
      } else if (local.holders[b].size() > 1) {
        copied += elements;
      }
    }
  }
  if (partial > 0) add(traffic.partials, partial * bytes_of(settings_.reduce), settings_.reductions);
  if (copied > 0) add(traffic.copies, copied * bytes_of(settings_.reduce), settings_.reductions);
}

}  // namespace

TensorTraffic tensor_traffic(const GraphSpec& graph, const TensorSettings& settings, ProgramCache* programs) {
  return TrafficCounter(graph, settings, programs).run(false);
}

TensorTraffic gradient_traffic(const GraphSpec& graph, const TensorSettings& settings) {
  return TrafficCounter(graph, settings, nullptr).run(true);
}

}  // namespace orthant
