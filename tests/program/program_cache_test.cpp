// Programs that are compiled once: the cached one is what compile_unit() makes, for every size and degree.
#include "orthant/program/program_cache.h"

#include <gtest/gtest.h>

#include "orthant/layout/expert_view.h"
#include "orthant/models/mixtral/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "program/compiled.h"

namespace orthant {
namespace program_cache_test {

LlamaConfig model() {
  LlamaConfig config;
  config.hidden_size = 96;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 12;
  config.num_key_value_heads = 4;
  config.intermediate_size = 192;
  config.vocab_size = 96;
  return config;
}

GraphSpec graph_of(std::int64_t rows, const test::Over& over, const LlamaConfig& config = model()) {
  return test::over(build_spec(config, {.rows = rows, .sequence = 16}), over);
}

// Asks for the programs of all units, and compares each.
void expect_compiled(ProgramCache& cache, const GraphSpec& graph, const Remake& remake) {
  for (const bool in_forward : {false, true}) {
    UnitPrograms programs(graph, remake, {.gradients_in_forward = in_forward}, &cache);
    for (std::size_t u = 0; u < graph.units.size(); ++u) {
      const UnitSpec& unit = graph.units[u];
      ProgramOptions options{.needs = programs.needs(unit), .gradients_in_forward = in_forward};
      if (unit.recomputable) options.remake = remake;
      EXPECT_EQ(programs[u], compile_unit(graph, unit, options)) << unit.name;
    }
  }
}

TEST(ProgramCache, GivesWhatWouldBeCompiled) {
  ProgramCache cache;
  for (const bool sequence_parallel : {false, true}) {
    for (const bool regather : {false, true}) {
      for (const bool loss_parallel : {false, true}) {
        for (const int degree : {1, 2, 4, 12}) {  // at the last, heads of keys are copied
          for (const Recompute mode : kRecomputeModes) {
            const test::Over over{degree, sequence_parallel, regather, loss_parallel};
            expect_compiled(cache, graph_of(2, over), remake_of(mode));
          }
        }
      }
    }
  }
}

TEST(ProgramCache, CompilesOnceForAllSizesAndDegrees) {
  ProgramCache cache;
  const auto ask = [&](std::int64_t rows, int degree) {
    expect_compiled(cache, graph_of(rows, {.degree = degree}), {});
    return cache.compiled();
  };
  const int first = ask(1, 2);
  EXPECT_EQ(first, 2 * 4) << "embedding, layer, head and loss, each with gradients in forward and without";
  EXPECT_EQ(ask(1, 2), first);
  EXPECT_EQ(ask(8, 2), first);
  EXPECT_EQ(ask(8, 4), first);
}

TEST(ProgramCache, TellsApartWhatCompilesDifferently) {
  ProgramCache cache;
  const auto added = [&](const GraphSpec& graph, const Remake& remake = {}, bool training = true) {
    const int before = cache.compiled();
    UnitPrograms programs(graph, remake, {.training = training}, &cache);
    programs[static_cast<std::size_t>(graph.unit_index("layers.1"))];
    return cache.compiled() - before;
  };
  const GraphSpec graph = graph_of(2, {.degree = 2});
  EXPECT_EQ(added(graph), 1);
  EXPECT_EQ(added(graph), 0);
  EXPECT_EQ(added(graph, remake_of(Recompute::full)), 1);
  EXPECT_EQ(added(graph, {}, /*training=*/false), 1);
  EXPECT_EQ(added(graph_of(2, {})), 1);
  EXPECT_EQ(added(graph_of(2, test::kSp)), 1);
  GraphSpec frozen = graph;
  frozen.units[static_cast<std::size_t>(frozen.unit_index("layers.1"))].parameters.front().trainable = false;
  EXPECT_EQ(added(frozen), 1);
  LlamaConfig wide = model();
  wide.intermediate_size *= 2;
  EXPECT_EQ(added(graph_of(2, {.degree = 2}, wide)), 1);
}

TEST(ProgramCache, TellsApartHowExpertsLie) {
  ProgramCache cache;
  const ModelConfig config = preset_config(mixtral_family(), "mixtral-tiny");
  const auto products = [&](int ep) {
    const Mesh mesh({{Axis::fsdp, 4}, {Axis::ep, ep}});
    const GraphSpec graph = with_experts(build_spec(config, {.rows = 2, .sequence = 4}), mesh, {});
    UnitPrograms programs(graph, {}, {}, &cache);
    const auto index = static_cast<std::size_t>(graph.unit_index("layers.1"));
    EXPECT_EQ(programs[index], compile_unit(graph, graph.units[index], {.needs = programs.needs(graph.units[index])}));
    return cache.compiled();
  };
  EXPECT_EQ(products(1), 1);
  EXPECT_EQ(products(2), 2);
  EXPECT_EQ(products(4), 3);
  EXPECT_EQ(products(2), 3);
}

}  // namespace program_cache_test
}  // namespace orthant
