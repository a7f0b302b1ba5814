// What our runtime asks of a rank for each unit, from a resolved spec. Products follow from the matrices of a unit and
// the tokens it sees; what its FLOPs count beside them is attention.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "orthant/graph/backward.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/plan/layer_heads.h"
#include "orthant/plan/unit_products.h"
#include "orthant/plan/unit_run.h"
#include "orthant/plan/unit_work.h"

namespace orthant {
namespace {

// Passes over memory by kernels without products, per byte that a unit keeps and writes. A host's kernels are fused:
// norms, activations and residual sums read what they need once and write their result. On a device what our units
// move is counted (unit_functions.h); modules of a user run ATen's kernels, which write what lies between.
struct Passes {
  double forward = 0;
  double backward = 0;
};
constexpr Passes kFusedPasses = {1.5, 3};
constexpr Passes kPlainPasses = {3, 5};

// Reads and writes of a score by ATen's kernels on a device: scaled, masked, summed, shifted, raised, narrowed; in
// backward made again, and its gradient.
constexpr double kForwardScoreMoves = 17;
constexpr double kBackwardScoreMoves = 25;

double as_double(std::int64_t size) {
  return static_cast<double>(size);
}

class SpecWork {
 public:
  SpecWork(const GraphSpec& graph, const PlanSettings& settings)
      : graph_(graph),
        settings_(settings),
        degree_(graph.tensor ? graph.tensor->degree : 1),
        needs_gradient_(graph.units.size(), false) {
    for (std::size_t u = 0; u < graph.units.size(); ++u) needs_gradient_[u] = is_trained_before(graph.units[u]);
  }

  UnitWork unit(std::size_t index) {
    const UnitSpec& unit = graph_.units[index];
    UnitWork work;
    work.name = unit.name;
    work.role = role_of(unit);
    add_parameters(work, unit);
    add_products(work, unit);
    if (unit.logits) add_chunks(work, unit);
    add_memory(work, unit);
    add_device_attention(work, unit);
    add_exchanges(work, unit, needs_gradient_[index]);
    add_ring(work, unit);
    return work;
  }

 private:
  static UnitRole role_of(const UnitSpec& unit) {
    if (unit.recomputable) return UnitRole::layer;
    const bool looks_up = std::ranges::any_of(unit.parameters, &ParameterSpec::table);
    if (looks_up && !unit.backward_reads_parameters) return UnitRole::embedding;
    const bool scores = std::ranges::find(unit.outputs, "logits") != unit.outputs.end();
    return unit.is_loss || scores ? UnitRole::head : UnitRole::other;
  }

  // Whether a gradient flows into a unit's inputs: something trained lies before it.
  bool is_trained_before(const UnitSpec& unit) {
    for (const auto& name : unit.inputs) {
      const int writer = graph_.producer(name);
      if (writer < 0) continue;
      const auto& before = graph_.units[static_cast<std::size_t>(writer)];
      const bool trains = std::ranges::any_of(before.parameters, &ParameterSpec::trainable);
      if (trains || needs_gradient_[static_cast<std::size_t>(writer)]) return true;
    }
    return false;
  }

  Shape local_shape(const ParameterSpec& parameter) const {
    return parameter.tp ? local_parameter(parameter, degree_, degree_ - 1).shape : parameter.shape;
  }

  void add_parameters(UnitWork& work, const UnitSpec& unit) const {
    for (const auto& parameter : unit.parameters) {
      if (parameter.trainable) work.parameters += as_double(num_elements(local_shape(parameter)));
    }
    for (const auto& name : unit.borrowed) {
      const auto& parameter = graph_.parameter(name);
      if (parameter.trainable) work.borrowed += as_double(num_elements(local_shape(parameter)));
    }
    work.parameters += work.borrowed;
  }

  double tokens_of(const UnitSpec& unit) const {
    const auto field = graph_.tokens_of(unit);
    return field.empty() ? 1 : as_double(num_elements(graph_.value(field).shape));
  }

  std::vector<const ParameterSpec*> matrices(const UnitSpec& unit) const {
    std::vector<const ParameterSpec*> found;
    const auto add = [&](const ParameterSpec& parameter, bool multiplied) {
      if (parameter.shape.size() == 2 && multiplied) found.push_back(&parameter);
    };
    for (const auto& parameter : unit.parameters) add(parameter, !parameter.table);
    for (const auto& name : unit.borrowed) add(graph_.parameter(name), true);
    return found;
  }

  void add_products(UnitWork& work, const UnitSpec& unit) const {
    const double tokens = tokens_of(unit);
    std::map<std::string, std::size_t> joined;
    for (const auto* matrix : matrices(unit)) {
      const auto shape = local_shape(*matrix);
      if (!matrix->joined.empty()) {
        const auto [place, added] = joined.emplace(matrix->joined, work.products.size());
        if (!added) {
          work.products[place->second].n += as_double(shape[0]);
          continue;
        }
      }
      work.products.push_back({tokens, as_double(shape[0]), as_double(shape[1])});
    }
    double flops = 0;
    for (const auto& product : work.products) flops += product.flops();
    if (flops > unit.cost.forward_flops && flops > 0) {  // a unit that takes some of its tokens: a pooler
      for (auto& product : work.products) product.m *= unit.cost.forward_flops / flops;
      flops = unit.cost.forward_flops;
    }
    // A rank of cp has its own queries, and the keys of all.
    work.attention_flops = (unit.cost.forward_flops - flops) * settings_.mesh.degree(Axis::cp);
    work.kernels = 2 * static_cast<int>(work.products.size()) + (work.attention_flops > 0 ? 6 : 2);
  }

  void add_chunks(UnitWork& work, const UnitSpec& unit) const {
    work.chunks = static_cast<int>(std::ceil(tokens_of(unit) / as_double(unit.logits->rows)));
    work.kernels += 2 * (work.chunks - 1);
    work.logits_made =
        logits_made(settings_.stages.schedule, settings_.mesh.degree(Axis::pp), settings_.microbatches());
  }

  // The heads of a layer on a device, and what makes them; none of other units, and on a host.
  struct DeviceHeads : LayerHeads {
    HeadsBy by = HeadsBy::formulas;
    double bits = 0;  // bytes that they keep of dropout
  };
  std::optional<DeviceHeads> device_heads(const UnitWork& work, const UnitSpec& unit) const {
    const bool attends = work.role == UnitRole::layer && work.products.size() >= 2 && work.attention_flops > 0;
    if (settings_.on_host || !attends) return std::nullopt;
    DeviceHeads heads{layer_heads(unit, tokens_of(unit), work.products[1].k, settings_.compute)};
    heads.by = heads_by(graph_, unit, heads, settings_);
    const auto field = graph_.tokens_of(unit);
    if (heads.by == HeadsBy::kernels && settings_.drops.scores && !field.empty()) {
      const Shape& shape = graph_.value(field).shape;
      heads.bits = kept_bits(as_double(shape[0]), heads.number, as_double(shape[1]));
    }
    return heads;
  }

  // What a fused kernel does not serve runs by ATen's formulas (nn/attention_plain.cpp): scores are whole, and nothing
  // is left out under a causal mask.
  void add_device_attention(UnitWork& work, const UnitSpec& unit) const {
    const auto heads = device_heads(work, unit);
    if (!heads) return;
    const double tokens = tokens_of(unit);
    const double element = bytes_of(settings_.compute);
    const double statistic = std::max<double>(element, bytes_of(DType::float32));
    if (heads->by != HeadsBy::formulas) {
      work.head_size = heads->size;
      work.attention_bytes = tokens * (work.products[0].n + work.products[1].k) * element + heads->bits;
      work.drops_attention = heads->by == HeadsBy::kernels;
      return;
    }
    const double scores = heads->number * tokens * static_cast<double>(settings_.sequence);
    work.fused_attention = false;
    work.attention_flops = 4 * scores * heads->size;
    work.attention_moved_bytes = kForwardScoreMoves * scores * statistic;
    work.moved_bytes += work.attention_moved_bytes;
    work.backward_moved_bytes += kBackwardScoreMoves * scores * statistic;
  }

  // As a rank holds it.
  double value_bytes(const ValueSpec& value) const {
    const bool cut = value.tp || (value.sequence_sharded && degree_ > 1);
    return as_double(num_elements(value.shape)) * bytes_of(value.dtype) / (cut ? degree_ : 1);
  }

  // Where a host multiplies narrow matrices in float32: the weight of a product, and its gradient.
  double widened_bytes(const UnitWork& work) const {
    const bool narrow = bytes_of(settings_.compute) < bytes_of(DType::float32);
    if (!settings_.on_host || !settings_.widens_products || !narrow) return 0;
    double most = 0;
    for (const auto& product : work.products) most = std::max(most, product.n * product.k);
    return 2 * most * bytes_of(DType::float32);
  }

  // What a run has besides what it keeps, what it draws and, on a device, moves. Of units without sizes of their own:
  // what they were given and hand on.
  void add_running(UnitWork& work, const UnitSpec& unit) const {
    const double kept = work.kept_bytes.at(static_cast<std::size_t>(settings_.recompute)) + work.logits_bytes;
    if (const auto run = run_sized(graph_, unit, settings_); run.forward > 0) {
      work.forward_drawn = run.forward_drawn;
      work.inputs_drawn = run.inputs_drawn;
      work.weights_drawn = run.weights_drawn;
      work.forward_bytes = run.forward - kept;
      work.backward_bytes = run.backward - kept;
      work.inputs_bytes = run.inputs - kept;
      work.weights_bytes = run.weights - work.deferred_bytes;
      work.in_forward = run.in_forward;
      if (work.in_forward) {
        work.in_forward->forward -= work.in_forward->kept;
        work.in_forward->backward -= work.in_forward->kept;
      }
      if (!settings_.on_host) {
        work.moved_bytes = run.forward_moved;
        work.backward_moved_bytes = run.backward_moved;
        if (unit.logits) work.remade_moved_bytes = run.weights_moved;
      }
      return;
    }
    double given = 0;
    for (const auto& name : unit.inputs) {
      if (!graph_.is_batch_field(name)) given += value_bytes(graph_.value(name));
    }
    work.forward_bytes = work.backward_bytes = work.inputs_bytes = given + work.output_bytes + widened_bytes(work);
    work.weights_bytes = widened_bytes(work);
  }

  void add_memory(UnitWork& work, const UnitSpec& unit) const {
    const auto& cost = unit.cost;
    for (std::size_t mode = 0; mode < cost.kept_bytes.size(); ++mode) {
      const auto kept = as_double(cost.kept_bytes[mode]);
      (unit.is_loss && !unit.logits ? work.logits_bytes : work.kept_bytes[mode]) = kept;
    }
    if (const auto heads = device_heads(work, unit)) work.kept_bytes.front() += heads->bits;
    work.kept_bytes.back() = work.kept_bytes.front();
    work.deferred_bytes = as_double(cost.deferred_bytes);
    work.output_bytes = as_double(cost.output_bytes);
    const double touched = work.kept_bytes[0] + work.logits_bytes + work.output_bytes;
    const Passes& passes = settings_.on_host ? kFusedPasses : kPlainPasses;
    work.moved_bytes = passes.forward * touched;
    work.backward_moved_bytes = passes.backward * touched;
    add_running(work, unit);
  }

  // Note [Tensor traffic] in tensor_traffic.h, unit by unit.
  void add_exchanges(UnitWork& work, const UnitSpec& unit, bool inputs_need_gradient) const {
    if (degree_ == 1) return;
    const auto& sharing = *graph_.tensor;
    const double element = bytes_of(settings_.compute);
    const auto add = [](std::vector<PricedExchange>& list, ExchangeKind kind, double bytes) {
      list.push_back({kind, Axis::tp, bytes});
    };
    for (const auto& product : unit_products(graph_, unit, inputs_need_gradient)) {
      const auto& shape = product.weight->shape;
      const bool column = product.kind == UnitProduct::Kind::column;
      const double hidden = as_double(column || product.kind == UnitProduct::Kind::lookup ? shape[1] : shape[0]);
      const double bytes = tokens_of(unit) * hidden * element;
      if (column) {
        if (sharing.sequence_parallel) add(work.forward_exchanges, ExchangeKind::all_gather, bytes);
        if (sharing.sequence_parallel && sharing.regather && !unit.logits) {
          add(work.backward_exchanges, ExchangeKind::all_gather, bytes);
        }
        if (!product.input_gradient) continue;
        add(work.backward_exchanges,
            sharing.sequence_parallel ? ExchangeKind::reduce_scatter : ExchangeKind::all_reduce, bytes);
      } else {
        add(work.forward_exchanges, sharing.sequence_parallel ? ExchangeKind::reduce_scatter : ExchangeKind::all_reduce,
            bytes);
        if (sharing.sequence_parallel) add(work.backward_exchanges, ExchangeKind::all_gather, bytes);
      }
    }
    if (settings_.recompute == PlanRecompute::full && unit.recomputable) {
      work.remade_exchanges = work.forward_exchanges;
    }
    if (!unit.is_loss) return;
    const double tokens = tokens_of(unit);
    const int sums = unit.logits || sharing.loss_parallel ? 3 * work.chunks : 0;
    for (int sum = 0; sum < sums; ++sum) {
      add(work.forward_exchanges, ExchangeKind::all_reduce, tokens / work.chunks * bytes_of(settings_.statistics));
    }
  }

  // Keys and values of other cp ranks pass through this one, their gradients on the way back; those of a layer are
  // what its first column product makes beside queries, which are as wide as the input of its row product.
  void add_ring(UnitWork& work, const UnitSpec& unit) const {
    const int cp = settings_.mesh.degree(Axis::cp);
    if (cp == 1 || work.role != UnitRole::layer || work.products.size() < 2) return;
    const auto& made = work.products[0];
    const double keys = std::max(made.n - work.products[1].k, 0.0);
    const double bytes = (cp - 1) * made.m * keys * bytes_of(settings_.compute);
    work.forward_exchanges.push_back({ExchangeKind::ring, Axis::cp, bytes});
    work.backward_exchanges.push_back({ExchangeKind::ring, Axis::cp, 2 * bytes});
    if (settings_.recompute != PlanRecompute::none) {
      work.remade_exchanges.push_back({ExchangeKind::ring, Axis::cp, bytes});
    }
  }

  const GraphSpec& graph_;
  const PlanSettings& settings_;
  int degree_;
  std::vector<bool> needs_gradient_;
};

}  // namespace

int logits_made(std::string_view schedule, int pp, std::int64_t microbatches) {
  if (pp == 1 || schedule == "1f1b" || schedule == "interleaved") return 1;
  if (schedule == "gpipe") return microbatches > 1 ? 2 : 1;
  return 3;
}

ModelWork spec_work(const GraphSpec& resolved, const PlanSettings& settings) {
  SpecWork make(resolved, settings);
  ModelWork work;
  for (std::size_t unit = 0; unit < resolved.units.size(); ++unit) work.push_back(make.unit(unit));
  return work;
}

}  // namespace orthant
