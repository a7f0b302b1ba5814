#include "orthant/plan/tensor_traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/graph/backward.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/plan/unit_products.h"

namespace orthant {
namespace {

using Entry = TensorTraffic::Entry;
using Kind = UnitProduct::Kind;

constexpr std::int64_t kLossSums = 3;  // of maxima, of exponentials, of the targets' logits

void add(Entry& entry, std::int64_t bytes, std::int64_t times = 1) {
  entry.calls += times;
  entry.bytes += times * bytes;
}

void add(TensorTraffic& total, const TensorTraffic& part, std::int64_t times) {
  for (const auto member : {&TensorTraffic::sum, &TensorTraffic::gather, &TensorTraffic::scatter}) {
    (total.*member).calls += times * (part.*member).calls;
    (total.*member).bytes += times * (part.*member).bytes;
  }
}

// The tokens of a microbatch that a unit's products see.
std::int64_t num_tokens(const GraphSpec& graph, const UnitSpec& unit) {
  if (const auto field = graph.tokens_of(unit); !field.empty()) return num_elements(graph.value(field).shape);
  throw InternalError(fmt::format("graph \"{}\": unit {} has cut parameters and no tokens", graph.name, unit.name));
}

std::int64_t num_chunks(const UnitSpec& unit, std::int64_t tokens) {
  return std::max<std::int64_t>(1, tokens / unit.logits->rows + (tokens % unit.logits->rows > 0 ? 1 : 0));
}

class TrafficCounter {
 public:
  TrafficCounter(const GraphSpec& graph, const TensorSettings& settings)
      : graph_(graph),
        settings_(settings),
        trains_(!graph.losses().empty()),
        facts_(backward_facts(graph)),
        element_bytes_(bytes_of(settings.compute)) {
    if (!graph.tensor || graph.tensor->degree != settings.degree) {
      throw InternalError(fmt::format("graph \"{}\" lies over {} tp ranks, and the settings are for {}", graph.name,
                                      graph.tensor ? graph.tensor->degree : 0, settings.degree));
    }
    for (const ValueSpec& value : graph.values) check(value);
  }

  TensorTraffic run() const {
    TensorTraffic traffic;
    for (std::size_t u = 0; u < graph_.units.size(); ++u) {
      if (!runs_here(static_cast<int>(u))) continue;
      const UnitSpec& unit = graph_.units[u];
      const auto products = unit_products(graph_, unit, inputs_need_gradient(unit));
      const bool has_backward = trains_ && facts_.units[u];
      const bool again = has_backward && unit.recomputable && settings_.recompute == Recompute::full;
      add(traffic, forward(unit, products), (again ? 2 : 1) * settings_.microbatches);
      if (!has_backward) continue;
      add(traffic, backward(unit, products), settings_.microbatches);
      add_gradient_sums(traffic, static_cast<int>(u));
    }
    return traffic;
  }

 private:
  void check(const ValueSpec& value) const;
  bool inputs_need_gradient(const UnitSpec& unit) const;
  TensorTraffic forward(const UnitSpec& unit, const std::vector<UnitProduct>& products) const;
  TensorTraffic backward(const UnitSpec& unit, const std::vector<UnitProduct>& products) const;
  void add_gradient_sums(TensorTraffic& traffic, int unit) const;
  std::vector<const ParameterSpec*> held_parameters(int unit) const;

  bool runs_here(int unit) const { return runs_at(unit, settings_.unit_pp_coordinates, settings_.pp); }

  // The sum over tp of results for all tokens; under sequence parallelism each rank's own part of it.
  Entry& sum_of(TensorTraffic& traffic) const { return settings_.sequence_parallel ? traffic.scatter : traffic.sum; }

  const GraphSpec& graph_;
  const TensorSettings& settings_;
  const bool trains_;
  const BackwardFacts facts_;
  const std::int64_t element_bytes_;
};

void TrafficCounter::check(const ValueSpec& value) const {
  const bool cut = value.tp.has_value();
  if ((value.sequence_sharded && !settings_.sequence_parallel) || (cut && !settings_.loss_parallel)) {
    throw InternalError(
        fmt::format("graph \"{}\": value {} is cut over tp, but the settings say otherwise", graph_.name, value.name));
  }
}

bool TrafficCounter::inputs_need_gradient(const UnitSpec& unit) const {
  return std::ranges::any_of(unit.inputs, [&](const std::string& name) {
    const auto found = std::ranges::find(graph_.values, name, &ValueSpec::name);
    return found != graph_.values.end() && facts_.values[static_cast<std::size_t>(found - graph_.values.begin())];
  });
}

TensorTraffic TrafficCounter::forward(const UnitSpec& unit, const std::vector<UnitProduct>& products) const {
  TensorTraffic traffic;
  const std::int64_t token_bytes = products.empty() ? 0 : num_tokens(graph_, unit) * element_bytes_;
  for (const UnitProduct& product : products) {
    const Shape& shape = product.weight->shape;
    if (product.kind != Kind::column) {
      add(sum_of(traffic), token_bytes * shape[product.kind == Kind::row ? 0 : 1]);
    } else if (settings_.sequence_parallel) {
      add(traffic.gather, token_bytes * shape[1]);
    }
  }
  // A column product that no row product follows is a head.
  const bool is_head =
      !products.empty() && std::ranges::all_of(products, [](const auto& p) { return p.kind == Kind::column; });
  if (unit.logits) {
    const std::int64_t tokens = num_tokens(graph_, unit);
    traffic.sum.calls += kLossSums * num_chunks(unit, tokens);
    traffic.sum.bytes += kLossSums * tokens * bytes_of(settings_.statistics);
  } else if (is_head && !graph_.value(unit.outputs.front()).tp) {
    add(traffic.gather, num_elements(graph_.value(unit.outputs.front()).shape) * element_bytes_);
  }
  for (const std::string& name : unit.inputs) {
    const ValueSpec& value = graph_.value(name);
    if (unit.is_loss && value.tp) {
      const std::int64_t tokens = num_elements(value.shape) / value.shape.at(static_cast<std::size_t>(value.tp->dim));
      add(traffic.sum, tokens * bytes_of(settings_.statistics), kLossSums);
    }
    if (unit.kind.ends_with(".pooler") && value.sequence_sharded) {
      add(traffic.sum, value.shape.front() * value.shape.back() * element_bytes_);
    }
  }
  return traffic;
}

TensorTraffic TrafficCounter::backward(const UnitSpec& unit, const std::vector<UnitProduct>& products) const {
  TensorTraffic traffic;
  const std::int64_t token_bytes = products.empty() ? 0 : num_tokens(graph_, unit) * element_bytes_;
  for (const UnitProduct& product : products) {
    const Shape& shape = product.weight->shape;
    const bool trained = product.weight->trainable;
    if (product.kind == Kind::column) {
      if (product.input_gradient) add(sum_of(traffic), token_bytes * shape[1]);
      const bool again = trained && settings_.regather && !unit.logits;  // a head that is the loss keeps all tokens
      if (again && settings_.sequence_parallel) add(traffic.gather, token_bytes * shape[1]);
    } else if (settings_.sequence_parallel) {
      const bool row = product.kind == Kind::row;
      if (trained || (row && product.input_gradient)) add(traffic.gather, token_bytes * shape[row ? 0 : 1]);
    }
  }
  return traffic;
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

TensorTraffic tensor_traffic(const GraphSpec& graph, const TensorSettings& settings) {
  return TrafficCounter(graph, settings).run();
}

}  // namespace orthant
