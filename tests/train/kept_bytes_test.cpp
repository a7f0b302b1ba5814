// Spec against runtime: the parameters a model really has, the activation bytes it really keeps between forward and
// backward, and those that wait for the gradients of weights when the backward is split, are those its spec states.
#include <cmath>
#include <map>

#include "orthant/layout/local_parameter.h"
#include "spec_against_runtime.h"

namespace orthant {
namespace kept_bytes_test {

using test::SpecAgainstRuntime;

TEST_P(SpecAgainstRuntime, HasTheSameParameters) {
  std::map<std::string, Shape> held;
  std::int64_t elements = 0;
  for (const auto& buffer : store.buffers()) {
    for (const auto& entry : buffer->layout().entries) {
      EXPECT_TRUE(held.emplace(entry.parameter, entry.shape).second) << entry.parameter;
      elements += buffer->master_view(entry).numel();
    }
  }
  std::int64_t expected = 0;
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) {
      const auto part = local_parameter(parameter, graph.tensor->degree, lone.rank).shape;
      EXPECT_EQ(held.at(parameter.name), part) << parameter.name;
      expected += num_elements(part);
    }
  }
  EXPECT_EQ(elements, expected);
  if (!lone.axis) {
    EXPECT_EQ(elements, graph.num_parameters());
  }
}

TEST_P(SpecAgainstRuntime, KeepsTheBytesItStates) {
  auto actions = forwards();
  actions.push_back({.kind = ActionKind::reduce, .unit = 0});
  for (const auto mode : kRecomputeModes) {
    double stated = 0;
    for (const auto& unit : graph.units) {
      stated += static_cast<double>(
          unit.cost.kept_bytes[static_cast<std::size_t>(unit.recomputable ? mode : Recompute::none)]);
    }
    const auto found = static_cast<double>(measured(mode, actions).front());
    EXPECT_NEAR(found / stated, 1.0, 0.05) << recompute_name(mode) << ": kept " << found << " bytes, stated " << stated;
  }
}

// What a unit's W gives back is what its B left for it; and once all B have run there is nothing else.
TEST_P(SpecAgainstRuntime, DefersTheBytesItStates) {
  constexpr std::int64_t kLosses = 64;
  const Action measure{.kind = ActionKind::reduce, .unit = 0};
  auto actions = forwards();
  for (int u = num_units() - 1; u >= 0; --u) {
    actions.push_back({.kind = ActionKind::backward_input, .unit = u, .microbatch = 0});
  }
  actions.push_back(measure);
  for (int u = 0; u < num_units(); ++u) {
    actions.push_back({.kind = ActionKind::backward_weight, .unit = u, .microbatch = 0});
    actions.push_back(measure);
  }
  for (const auto mode : kRecomputeModes) {
    const auto live = measured(mode, actions);
    std::int64_t given_back = 0;
    for (std::size_t u = 0; u < graph.units.size(); ++u) {
      const auto& unit = graph.units[u];
      const auto found = live[u] - live[u + 1];
      EXPECT_GE(found, unit.cost.deferred_bytes) << recompute_name(mode) << ": " << unit.name;
      EXPECT_LE(found, unit.cost.deferred_bytes + uncounted(unit)) << recompute_name(mode) << ": " << unit.name;
      given_back += found;
    }
    EXPECT_LE(std::abs(live[0] - given_back), kLosses)
        << recompute_name(mode) << ": " << live[0] << " bytes once all B ran";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SpecAgainstRuntime, testing::ValuesIn(test::models_over_tp(/*rows=*/2)),
                         [](const auto& info) { return info.param.name; });

}  // namespace kept_bytes_test
}  // namespace orthant
