// What our runtime asks of a rank for each unit, from the programs of a resolved spec. Of a user's own modules products
// follow from the matrices of a unit and the tokens it sees.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "orthant/base/index.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/ops/rule.h"
#include "orthant/plan/estimate/device_heads.h"
#include "orthant/plan/estimate/sized_run.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/program/context_exchanged.h"
#include "orthant/program/cost.h"
#include "orthant/program/unit_programs.h"

namespace orthant {
namespace {

// Passes over memory by kernels without products, per byte that a unit keeps and writes. A host's kernels are fused:
// norms, activations and residual sums read what they need once and write their result. On a device what our units
// move is counted (operation_price.h); modules of a user run ATen's kernels, which write what lies between.
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

class ProgramWork {
 public:
  ProgramWork(const GraphSpec& graph, const PlanSettings& settings, ProgramCache* cache)
      : graph_(graph),
        settings_(settings),
        degree_(graph.tensor ? graph.tensor->degree : 1),
        programs_(graph, remake_of(settings), {}, cache),
        in_forward_(graph, remake_of(settings), {.gradients_in_forward = true}, cache) {}

  UnitWork unit(std::size_t index) {
    const UnitSpec& unit = graph_.units[index];
    UnitWork work = unit.body && !unit.runs_module() ? by_program(index) : by_matrices(unit);
    work.name = unit.name;
    work.role = role_of(unit);
    add_parameters(work, unit);
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

  Shape shape_of(const ParameterSpec& parameter) const {
    return parameter.tp ? local_parameter(parameter, degree_, degree_ - 1).shape : parameter.shape;
  }

  // Of the experts of a layer that lie on a mesh of their own, what the rank with most of them has.
  double held_share(const ParameterSpec& parameter) const {
    if (!parameter.expert) return 1;
    const double experts = as_double(parameter.expert->count);
    return std::ceil(experts / graph_.expert_degree) / experts;
  }

  void add_parameters(UnitWork& work, const UnitSpec& unit) const {
    for (const auto& parameter : unit.parameters) {
      if (!parameter.trainable) continue;
      const double elements = as_double(num_elements(shape_of(parameter)));
      work.parameters += elements * held_share(parameter);
      if (parameter.expert) work.expert_parameters += elements * held_share(parameter);
    }
    for (const auto& name : unit.borrowed) {
      const auto& parameter = graph_.parameter(name);
      if (parameter.trainable) work.borrowed += as_double(num_elements(shape_of(parameter)));
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

  // Of a user's own module.
  UnitWork by_matrices(const UnitSpec& unit) const {
    UnitWork work;
    const double tokens = tokens_of(unit);
    for (const auto* matrix : matrices(unit)) {
      const auto shape = shape_of(*matrix);
      work.products.push_back({tokens, as_double(shape[0]), as_double(shape[1])});
    }
    work.kernels = 2 * static_cast<int>(work.products.size()) + 2;
    add_memory(work, unit);
    double given = 0;
    for (const auto& name : unit.inputs) {
      if (!graph_.is_batch_field(name)) given += value_bytes(graph_.value(name));
    }
    work.forward_bytes = work.backward_bytes = work.inputs_bytes = given + work.output_bytes + widened_bytes(work);
    work.weights_bytes = widened_bytes(work);
    return work;
  }

  // Units that run alike on as many tokens ask for the same.
  UnitWork by_program(std::size_t index) {
    const UnitSpec& unit = graph_.units[index];
    const Program& program = programs_[index];
    UnitSizes sizes = unit_sizes(graph_, unit, graph_.tensor.value_or(TensorSharing{}));
    sizes.compute = settings_.compute;
    const auto [place, added] = known_.try_emplace({&program, sizes.rows, sizes.whole_sequence});
    if (!added) return place->second;
    UnitWork& work = place->second;
    add_products(work, program, sizes);
    if (unit.logits) add_chunks(work, unit);
    add_memory(work, unit);
    add_running(work, unit,
                most_sized(program, unit.logits ? &in_forward_[index] : nullptr, sizes, settings_, graph_.context));
    if (const Operation* attention = attention_of(program)) {
      add_attention(work, program, *attention, sizes);
    }
    add_exchanges(work, program, sizes);
    if (graph_.context.degree > 1) add_context_exchanges(work, program, sizes);
    return work;
  }

  static double elements(const Program& program, int value, const UnitSizes& sizes) {
    return as_double(local_elements(program.values[to_index(value)].at, sizes));
  }

  // What the rank whose experts take most has of what all would have alike.
  double skew(const GraphSpec& graph) const { return graph.expert_degree > 1 ? settings_.expert_skew : 1; }

  // Of the rank's experts, each with an equal share of the rows.
  void add_expert_products(UnitWork& work, const Program& program, const Operation& operation,
                           const UnitSizes& sizes) const {
    const Shape weight = local_shape(program.parameters[to_index(operation.parameters.front())].at, sizes);
    const ParameterAt& at = program.parameters[to_index(operation.parameters.front())].at;
    const auto total = operation.attributes.integer("experts");
    const auto experts = at.experts > 0 ? (total + at.expert_degree - 1) / at.expert_degree : total;
    const double rows = as_double(local_shape(program.values[to_index(operation.in.front())].at, sizes)[0]);
    for (std::int64_t e = 0; e < experts; ++e) {
      work.products.push_back(
          {skew(graph_) * rows / as_double(experts), as_double(weight[0]) / as_double(experts), as_double(weight[1])});
    }
  }

  void add_products(UnitWork& work, const Program& program, const UnitSizes& sizes) const {
    for (const auto& operation : program.forward) {
      if (operation.name == "expert_product") {
        add_expert_products(work, program, operation, sizes);
        continue;
      }
      if (operation.name != "project" && operation.name != "head_loss") continue;
      const Shape weight = local_shape(program.parameters[to_index(operation.parameters.front())].at, sizes);
      const Shape tokens = local_shape(program.values[to_index(operation.in.front())].at, sizes);
      work.products.push_back(
          {as_double(tokens[0]), as_double(weight[0]), as_double(weight[1]), operation.attributes.flag(kFloat8)});
    }
    const bool attends = attention_of(program) != nullptr;
    work.kernels = 2 * static_cast<int>(work.products.size()) + (attends ? 6 : 2);
  }

  static const Operation* attention_of(const Program& program) {
    const auto found = std::ranges::find_if(program.forward, [](const Operation& operation) {
      return operation.name == "attention" || operation.name == "rotary_attention";
    });
    return found == program.forward.end() ? nullptr : &*found;
  }

  void add_chunks(UnitWork& work, const UnitSpec& unit) const {
    work.chunks = static_cast<int>(std::ceil(tokens_of(unit) / as_double(unit.logits->rows)));
    work.kernels += 2 * (work.chunks - 1);
    work.logits_made =
        logits_made(settings_.stages.schedule, settings_.mesh.degree(Axis::pp), settings_.microbatches());
  }

  // What a fused kernel does not serve runs by ATen's formulas (ops/attention/attention_plain.cpp): scores are whole,
  // and nothing is left out under a causal mask. A rank of cp has its own queries, and the keys of all.
  void add_attention(UnitWork& work, const Program& program, const Operation& attention, const UnitSizes& sizes) const {
    const int out = attention.out[attention.name == "attention" ? 0 : 1];
    const double made = elements(program, out, sizes);
    const double whole = 4 * made * as_double(sizes.whole_sequence);
    work.attention_flops = whole * attended_share(attention.attributes, sizes.whole_sequence);
    if (settings_.on_host) return;
    const HeadsBy by = heads_by(attention, 1, sizes);
    const double size = as_double(attention.attributes.integer("head_size"));
    const double heads = made / as_double(sizes.tokens()) / size;
    if (by != HeadsBy::formulas) {
      const bool keeps = by == HeadsBy::kernels && attention.attributes.number("p") > 0;
      const double bits = keeps ? kept_bits(as_double(sizes.rows), heads, as_double(sizes.sequence)) : 0;
      work.head_size = size;
      work.attention_bytes = (elements(program, attention.in[0], sizes) + made) * bytes_of(sizes.compute) + bits;
      work.drops_attention = by == HeadsBy::kernels;
      return;
    }
    const double statistic = static_cast<double>(bytes_of(statistics_dtype(sizes.compute)));
    const double scores = heads * as_double(sizes.tokens()) * static_cast<double>(settings_.sequence);
    work.fused_attention = false;
    work.attention_flops = 4 * scores * size;
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

  // What a step tells of a unit's experts: Executor::expert_loads().
  static double told_bytes(const UnitSpec& unit) {
    return unit.num_experts() > 0 ? as_double(unit.num_experts() + 1) * bytes_of(DType::int64) : 0;
  }

  // What a run has besides what it keeps, what it draws and, on a device, moves.
  void add_running(UnitWork& work, const UnitSpec& unit, const SizedRun& run) const {
    const auto mode = static_cast<std::size_t>(settings_.recompute);
    (unit.is_loss && !unit.logits ? work.logits_bytes : work.kept_bytes.at(mode)) = run.kept + told_bytes(unit);
    work.deferred_bytes = run.deferred;
    work.forward_drawn = run.forward_drawn;
    work.inputs_drawn = run.inputs_drawn;
    work.weights_drawn = run.weights_drawn;
    work.forward_bytes = run.forward - run.kept;
    work.backward_bytes = run.backward - run.kept;
    work.inputs_bytes = run.inputs - run.kept;
    work.weights_bytes = run.weights - run.deferred;
    work.in_forward = run.in_forward;
    if (work.in_forward) {
      work.in_forward->forward -= work.in_forward->kept;
      work.in_forward->backward -= work.in_forward->kept;
    }
    if (settings_.on_host) return;
    work.moved_bytes = run.forward_moved;
    work.backward_moved_bytes = run.backward_moved;
    if (unit.logits) work.remade_moved_bytes = run.weights_moved;
  }

  void add_memory(UnitWork& work, const UnitSpec& unit) const {
    const auto& cost = unit.cost;
    for (std::size_t mode = 0; mode < cost.kept_bytes.size(); ++mode) {
      const auto kept = as_double(cost.kept_bytes[mode]) + told_bytes(unit);
      (unit.is_loss && !unit.logits ? work.logits_bytes : work.kept_bytes[mode]) = kept;
    }
    work.kept_bytes.back() = work.kept_bytes.front();
    work.deferred_bytes = as_double(cost.deferred_bytes);
    work.output_bytes = as_double(cost.output_bytes);
    const double touched = work.kept_bytes[0] + work.logits_bytes + work.output_bytes;
    const Passes& passes = settings_.on_host ? kFusedPasses : kPlainPasses;
    work.moved_bytes = passes.forward * touched;
    work.backward_moved_bytes = passes.backward * touched;
  }

  static ExchangeKind kind_of(const ExchangeSpec& exchange) {
    switch (exchange.kind) {
      case ExchangeSpec::Kind::sum:
        return ExchangeKind::all_reduce;
      case ExchangeSpec::Kind::gather:
        return ExchangeKind::all_gather;
      case ExchangeSpec::Kind::scatter:
        return ExchangeKind::reduce_scatter;
      default:
        return ExchangeKind::all_to_all;
    }
  }

  // Those of the lists, and the sums of a loss over cut logits.
  void add_exchanges(UnitWork& work, const Program& program, const UnitSizes& sizes) const {
    const auto add = [&](std::vector<PricedExchange>& to, const Operation& operation) {
      if (operation.name != "start") return;
      const auto& exchange = *operation.exchange;
      // Rows of tokens as the rank has them whose experts take most.
      const double share = exchange.moves_rows() ? skew(graph_) : 1;
      to.push_back({kind_of(exchange), exchange.axis, share * as_double(payload_bytes(program, operation, sizes))});
    };
    for (const auto& operation : program.forward) {
      add(work.forward_exchanges, operation);
      const bool sums = operation.name == "cross_entropy" || operation.name == "head_loss";
      if (!sums || !operation.attributes.flag("cut")) continue;
      const double bytes = as_double(sizes.tokens()) / work.chunks * bytes_of(settings_.statistics);
      for (int sum = 0; sum < 3 * work.chunks; ++sum) {
        work.forward_exchanges.push_back({ExchangeKind::all_reduce, Axis::tp, bytes});
      }
    }
    for (const auto& operation : program.both) add(work.backward_exchanges, operation);
  }

  // Of the cp rank that sends most.
  void add_context_exchanges(UnitWork& work, const Program& program, const UnitSizes& sizes) const {
    const auto most = [&](const std::vector<Operation>& list) {
      Exchanged found;
      for (int c = 0; c < graph_.context.degree; ++c) {
        const Exchanged one = context_exchanged(program, list, sizes, graph_.context, c);
        if (c == 0 || total_bytes(one) > total_bytes(found)) found = one;
      }
      return found;
    };
    const auto add = [](std::vector<PricedExchange>& exchanges, const Exchanged& sent) {
      const auto one = [&](ExchangeKind kind, const Exchanged::Entry& entry) {
        if (entry.calls > 0) exchanges.push_back({kind, Axis::cp, as_double(entry.bytes)});
      };
      one(ExchangeKind::ring, sent.sent);
      one(ExchangeKind::all_gather, sent.gather);
      one(ExchangeKind::reduce_scatter, sent.scatter);
      one(ExchangeKind::all_to_all, sent.all_to_all);
    };
    add(work.forward_exchanges, most(program.forward));
    add(work.backward_exchanges, most(program.both));
  }

  static std::int64_t total_bytes(const Exchanged& one) {
    return one.sent.bytes + one.gather.bytes + one.scatter.bytes + one.all_to_all.bytes;
  }

  const GraphSpec& graph_;
  const PlanSettings& settings_;
  int degree_;
  UnitPrograms programs_;
  UnitPrograms in_forward_;
  std::map<std::tuple<const Program*, std::int64_t, std::int64_t>, UnitWork> known_;
};

}  // namespace

int logits_made(std::string_view schedule, int pp, std::int64_t microbatches) {
  if (pp == 1 || schedule == "1f1b" || schedule == "interleaved") return 1;
  if (schedule == "gpipe") return microbatches > 1 ? 2 : 1;
  return 3;
}

ModelWork program_work(const GraphSpec& resolved, const PlanSettings& settings, ProgramCache* programs) {
  ProgramWork make(resolved, settings, programs);
  ModelWork work;
  for (std::size_t unit = 0; unit < resolved.units.size(); ++unit) work.push_back(make.unit(unit));
  return work;
}

}  // namespace orthant
