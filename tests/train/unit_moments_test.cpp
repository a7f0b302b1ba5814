// Planner against runtime: the most that forward and backward of every unit take.
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/plan/estimate/unit_run.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/schedule/forward_gradients.h"
#include "spec_against_runtime.h"

namespace orthant {
namespace unit_moments_test {

using UnitMoments = test::SpecAgainstRuntime;

// What the planner says an action takes beside what there is before it: the inputs of a forward, or what it kept and
// the gradient of its output.
double planned_bytes(const GraphSpec& graph, const ModelWork& work, const Action& action, PlanRecompute mode,
                     bool gradients_in_forward) {
  const auto& unit = work[static_cast<std::size_t>(action.unit)];
  if (gradients_in_forward && action.kind == ActionKind::backward) return unit.in_forward->backward;
  if (action.kind == ActionKind::backward) return unit.backward_bytes + unit.remade_bytes - unit.output_bytes;
  if (action.kind == ActionKind::backward_input) return unit.inputs_bytes - unit.output_bytes;
  if (action.kind == ActionKind::backward_weight) return unit.weights_bytes;
  double given = 0;
  for (const auto& name : graph.units[static_cast<std::size_t>(action.unit)].inputs) {
    const int writer = graph.producer(name);
    if (writer >= 0) given += work[static_cast<std::size_t>(writer)].output_bytes;
  }
  if (gradients_in_forward) return unit.in_forward->kept + unit.in_forward->forward - given;
  return unit.kept_bytes[static_cast<std::size_t>(mode)] + unit.logits_bytes + unit.forward_bytes - given;
}

// At its worst moment a run takes what the planner reckons with, in proportion to what the model keeps.
TEST_P(UnitMoments, AreThoseThePlannerStates) {
  constexpr double kMissing = 0.02;
  constexpr double kTooMuch = 0.08;
  PlanSettings settings;
  settings.compute = settings.params = settings.gradients = GetParam().work.compute;
  settings.on_host = true;
  settings.widens_products = !nn::cpu_multiplies(scalar_type(settings.compute));
  using Kinds = std::vector<ActionKind>;
  for (const auto& kinds :
       {Kinds{ActionKind::backward}, Kinds{ActionKind::backward_input, ActionKind::backward_weight}}) {
    auto list = forwards();
    for (const auto kind : kinds) {
      for (int u = num_units() - 1; u >= 0; --u) list.push_back({.kind = kind, .unit = u, .microbatch = 0});
    }
    const auto in_forward = gradients_in_forward(list, graph);
    for (const auto mode : kRecomputeModes) {
      settings.recompute = static_cast<PlanRecompute>(mode);
      const auto work = spec_work(graph, settings);
      double kept = 0;
      for (const auto& unit : work) kept += unit.kept_bytes[0] + unit.logits_bytes;
      const auto found = taken(mode, list);
      for (std::size_t i = 0; i < list.size(); ++i) {
        const auto measured = static_cast<double>(found[i]);
        const double planned = planned_bytes(graph, work, list[i], settings.recompute,
                                             in_forward.contains({list[i].unit, list[i].microbatch}));
        const auto text = to_string(list[i], graph) + ", recompute " + std::string(recompute_name(mode));
        EXPECT_GE(planned, measured - kMissing * kept) << text;
        EXPECT_LE(planned, measured + kTooMuch * kept) << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, UnitMoments, testing::ValuesIn(test::models_over_tp(/*rows=*/8)),
                         [](const auto& info) { return info.param.name; });

}  // namespace unit_moments_test
}  // namespace orthant
