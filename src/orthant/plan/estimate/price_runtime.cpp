// Memory and traffic of our own runtime: the resolved spec, the stages and the lists that would run.
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/graph/backward.h"
#include "orthant/layout/data_views.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/plan/estimate/data_state.h"
#include "orthant/plan/estimate/data_traffic.h"
#include "orthant/plan/estimate/estimate_parts.h"
#include "orthant/plan/estimate/pipeline_traffic.h"
#include "orthant/plan/estimate/rank_step.h"
#include "orthant/plan/estimate/stage_cut.h"
#include "orthant/plan/estimate/step_memory.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/program/float8.h"
#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace {

GraphSpec trained_spec(const ModelConfig& config, const PlanSettings& settings, ProgramCache* programs) {
  const int tp = settings.mesh.degree(Axis::tp);
  WorkSize work{.rows = settings.micro_batch,
                .sequence = settings.sequence,
                .secondary_sequence = settings.secondary_sequence,
                .compute = settings.compute,
                .tensor = sharing_of(settings.tensor, tp),
                .programs = programs};
  auto graph = trained_graph(build_spec(config, work), settings, programs);
  mark_gradients(graph);
  return settings.float8 ? with_float8_products(graph) : graph;
}

Pipeline pipeline_of(const GraphSpec& graph, const PlanSettings& settings) {
  const int pp = settings.mesh.degree(Axis::pp);
  auto stages = settings.stages;
  if (settings.split != "auto" && stages.split.empty() && pp > 1) {
    stages.split = named_split(graph, settings.split, pp * virtual_stages(stages.schedule, stages.virtual_stages));
    if (!stages.split.empty() && stages.placement.empty()) {
      stages.placement = schedule_placement(stages.schedule, pp, stages.virtual_stages);
    }
  }
  return make_pipeline(graph, pp, static_cast<int>(settings.microbatches()), stages);
}

template <typename Entry>
void add(AxisTraffic& traffic, const Entry& entry) {
  traffic.calls += entry.calls;
  traffic.bytes += entry.bytes;
}

class PpPricer {
 public:
  PpPricer(const GraphSpec& graph, const PlanSettings& settings, const Pipeline& pipeline, const Hardware& hardware,
           ProgramCache* programs)
      : graph_(graph), settings_(settings), pipeline_(pipeline), hardware_(hardware), programs_(programs) {}

  void price(int pp, PricedStages& stages) const {
    const auto step = rank_step(pipeline_, graph_, settings_, pp);
    stages.memory.push_back(memory(stages.work, step));
    stages.traffic.push_back(traffic(step));
    stages.updated.push_back(updated(step.data));
  }

 private:
  // Of the last tp rank, which has the largest parts.
  PpMemory memory(const ModelWork& work, RankStep step) const {
    step.data.coordinate[Axis::tp] = settings_.mesh.degree(Axis::tp) - 1;
    const auto state = data_state(graph_, step.data);
    PpMemory memory;
    // Where products read a copy of another type, the one that is updated belongs to the optimizer.
    const bool apart = state.compute > 0 && state.parameters > 0;
    memory.parameters = apart ? state.compute : state.parameters + state.compute;
    memory.optimizer = state.optimizer + (apart ? state.parameters : 0);
    memory.gradients = state.gradients;
    const auto worst = worst_moment(graph_, work, step, settings_);
    memory.activations = static_cast<std::int64_t>(worst.activations);
    memory.logits = static_cast<std::int64_t>(worst.logits);
    memory.temporary = static_cast<std::int64_t>(worst.temporary);
    return memory;
  }

  PpTraffic traffic(const RankStep& step) const {
    PpTraffic all;
    const auto spans = [&](AxisSet axes) { return span_of(settings_.mesh, axes, hardware_.cards_per_node); };
    const auto timed = [&](AxisTraffic& traffic, const auto& entry, ExchangeKind kind, const Span& span) {
      add(traffic, entry);
      traffic.seconds +=
          calls_seconds(kind, static_cast<double>(entry.bytes), static_cast<double>(entry.calls), span, hardware_);
    };
    for (const auto& view : data_views(graph_, step.data)) {
      const auto data = data_traffic(view, step.actions);
      const auto& policy = view.settings.policy;
      const Mesh& mesh = view.experts ? view.mesh : settings_.mesh;
      const auto over = [&](AxisSet axes) { return span_of(mesh, axes, hardware_.cards_per_node); };
      timed(all.fsdp, data.gather, ExchangeKind::all_gather, over(shard_axes(policy, mesh)));
      timed(all.fsdp, data.scatter, ExchangeKind::reduce_scatter, over(shard_axes(policy, mesh)));
      // One call where ranks of dp and cp hold the same.
      const AxisSet copies = copy_axes(policy, mesh);
      timed(copies == AxisSet{Axis::cp} ? all.cp : all.dp, data.sum, ExchangeKind::all_reduce, over(copies));
    }
    if (settings_.mesh.degree(Axis::pp) > 1) {
      const auto messages = pipeline_traffic(graph_, step.data);
      add(all.pp, messages.sent_values);
      add(all.pp, messages.sent_gradients);
      timed(all.tied, messages.tied, ExchangeKind::all_reduce, tied_span(spans({Axis::pp})));
    }
    if (settings_.mesh.degree(Axis::cp) > 1) {
      const auto context = cp_traffic(graph_, step.tensor, 0, programs_);
      for (const auto& entry : {context.sent, context.gather, context.scatter, context.all_to_all, context.sum}) {
        add(all.cp, entry);
      }
    }
    if (settings_.mesh.degree(Axis::tp) > 1) {
      const auto tensor = tp_traffic(graph_, step.tensor, programs_);
      add(all.tp, tensor.sum);
      add(all.tp, tensor.gather);
      add(all.tp, tensor.scatter);
      timed(all.tp, tensor.partials, ExchangeKind::all_reduce, spans({Axis::tp}));
      timed(all.tp, tensor.copies, ExchangeKind::all_reduce, spans({Axis::tp}));
    }
    add(all.ep, ep_traffic(graph_, step.tensor, {}, programs_));
    return all;
  }

  double updated(const DataSettings& data) const {
    double elements = 0;
    for (const auto& view : data_views(graph_, data)) {
      for (const int b : view.all()) {
        if (view.buffers[b].trainable) {
          elements += static_cast<double>(view.buffers[b].size) / static_cast<double>(view.num_shards());
        }
      }
    }
    return elements;
  }

  const GraphSpec& graph_;
  const PlanSettings& settings_;
  const Pipeline& pipeline_;
  const Hardware& hardware_;
  ProgramCache* programs_;
};

void refuse_other_stacks(const PlanSettings& settings) {
  if (settings.recompute == PlanRecompute::op) {
    throw ConfigError("--recompute op: orthant recomputes none, selective or full",
                      {.remedy = "use --recompute selective, or --stack torchtitan"});
  }
  if (!settings.flash) {
    throw ConfigError("--flash off: orthant has one attention, which keeps no scores from forward to backward",
                      {.remedy = "leave it out, or use --stack megatron"});
  }
}

}  // namespace

PricedStages price_runtime(const GraphSpec& resolved, const Pipeline& pipeline, const PlanSettings& settings,
                           const Hardware& hardware, ProgramCache* programs) {
  refuse_other_stacks(settings);
  PricedStages stages;
  stages.work = program_work(resolved, settings, programs);
  stages.map = pipeline.map;
  stages.table = pipeline.table;
  stages.edges = stage_edges(pipeline.map, resolved);
  const PpPricer pricer(resolved, settings, pipeline, hardware, programs);
  for (int pp = 0; pp < pipeline.pp_degree(); ++pp) pricer.price(pp, stages);
  return stages;
}

PricedStages price_runtime(const ModelConfig& config, const PlanSettings& settings, const Hardware& hardware,
                           ProgramCache* programs) {
  auto adjusted = settings;
  const auto graph = trained_spec(config, adjusted, programs);
  return price_runtime(graph, pipeline_of(graph, adjusted), adjusted, hardware, programs);
}

}  // namespace orthant
