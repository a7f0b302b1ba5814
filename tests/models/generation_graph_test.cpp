#include "orthant/models/generation_graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mesh/thrown_error.h"
#include "orthant/models/presets.h"
#include "orthant/models/work_size.h"
#include "orthant/ops/rule.h"
#include "orthant/program/print.h"
#include "orthant/program/program.h"

namespace orthant {
namespace generation_graph_test {

const WorkSize kOne{.rows = 1, .sequence = 1};

TEST(GenerationGraph, MakesLogitsOfPickedTokensAlone) {
  const auto graph = generation_graph(preset_config(*find_family("llama"), "llama-tiny"), kOne);
  EXPECT_TRUE(graph.cached);
  EXPECT_EQ(graph.value("logits").shape.size(), 2U);
  const Program head = compile_unit(graph, graph.units.back(), {.training = false});
  ASSERT_FALSE(head.forward.empty());
  EXPECT_EQ(to_string(head, head.forward.front()), "picked = first_token(hidden)");
  const Program layer = compile_unit(graph, graph.units[1], {.training = false});
  bool cached = false;
  for (const auto& operation : layer.forward) cached = cached || caches_keys(operation);
  EXPECT_TRUE(cached);
}

TEST(GenerationGraph, KnowsTheHeadsThatARankKeeps) {
  const auto config = preset_config(*find_family("llama"), "llama-tiny");
  GraphSpec graph = generation_graph(config, kOne);
  const auto whole = cached_heads(graph);
  graph.tensor = TensorSharing{.degree = 2};
  const auto half = cached_heads(graph);
  EXPECT_EQ(whole.front().kv_heads, 0) << "an embedding has no attention";
  EXPECT_EQ(half[1].kv_heads * 2, whole[1].kv_heads);
  EXPECT_EQ(common_window(whole), 0);
  EXPECT_EQ(common_window({{}, {2, 8, 5}, {2, 8, 7}}), 7);
  EXPECT_EQ(common_window({{2, 8, 5}, {2, 8, 0}}), 0) << "one of them meets everything";
}

TEST(GenerationGraph, NormsAndGatesArePartsOfProducts) {
  const auto graph = generation_graph(preset_config(*find_family("llama"), "llama-tiny"), kOne);
  const auto unit = std::ranges::find(graph.units, "layers.0", &UnitSpec::name);
  ASSERT_NE(unit, graph.units.end());
  const Program layer = compile_unit(graph, *unit, {.training = false});
  std::vector<std::string> names;
  for (const auto& operation : layer.forward) names.push_back(operation.name);
  EXPECT_EQ(names, (std::vector<std::string>{"project", "rotary_attention", "project", "project", "project"}));
  const auto& into_heads = layer.forward[0];
  const auto& into_mlp = layer.forward[3];
  for (const auto* product : {&into_heads, &into_mlp}) {
    ASSERT_EQ(product->parameters.size(), 3U);
    EXPECT_EQ(product->attributes.number(kNormEps), 1e-5);
  }
  EXPECT_FALSE(into_heads.attributes.flag(kGated));
  EXPECT_TRUE(into_mlp.attributes.flag(kGated));
  GraphSpec training = graph;
  training.cached = false;
  const Program apart = compile_unit(training, *unit, {.training = false});
  for (const auto& operation : apart.forward) EXPECT_FALSE(operation.attributes.flag(kGenerates));
}

TEST(GenerationGraph, RefusesModelsWithoutANextToken) {
  EXPECT_EQ(test::thrown_text([] { generation_graph(preset_config(*find_family("bert"), "bert-tiny"), kOne); }),
            "a model of kind bert does not generate text: it learns no next token\nuse a decoder, e.g. llama or gpt2");
}

}  // namespace generation_graph_test
}  // namespace orthant
