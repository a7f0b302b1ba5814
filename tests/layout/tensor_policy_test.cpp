#include "orthant/layout/tensor_policy.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "models/small_models.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace tensor_policy_test {

using test::bert;
using test::gpt2;
using test::llama;
using test::small_work;
using Styles = std::vector<std::pair<std::string, TensorStyle>>;

constexpr TensorPolicy policy(bool sequence, bool loss = true) {
  return {.sequence_parallel = sequence, .loss_parallel = loss};
}

std::string degree_refusal(const GraphSpec& graph, int degree) {
  return error_text<ConfigError>([&] { resolved_graph(graph, {}, degree); });
}

TEST(TensorStyle, HasTwoSetsOfNames) {
  for (const auto style : {TensorStyle::column, TensorStyle::row, TensorStyle::sequence, TensorStyle::replicate}) {
    EXPECT_EQ(parse_tensor_style(tensor_style_name(style)), style);
  }
  EXPECT_EQ(parse_tensor_style("colwise"), TensorStyle::column);
  EXPECT_EQ(parse_tensor_style("rowwise"), TensorStyle::row);
  EXPECT_EQ(tensor_style_name(parse_tensor_style("colwise")), "column");
  EXPECT_EQ(error_text<ConfigError>([] { parse_tensor_style("colum"); }),
            "unknown tensor style \"colum\"\n  fix: did you mean \"column\"? (one of column, row, sequence, replicate, "
            "colwise, rowwise, ColwiseParallel, RowwiseParallel, SequenceParallel)");
}

TEST(PlacedGraph, CutsNothingOnOneRank) {
  const Styles unknown = {{"nothing of that name", TensorStyle::row}};
  EXPECT_THROW(resolved_graph(llama(), {.styles = unknown}, 1), ConfigError);
  const Styles ignored = {{"mlp", TensorStyle::replicate}};
  for (const auto& graph : {llama(), gpt2(), bert(), trimodal_spec(test::small_trimodal(), small_work())}) {
    const auto resolved = resolved_graph(graph, {true, true, true, ignored}, 1);
    for (const auto& value : resolved.values) EXPECT_FALSE(value.tp || value.sequence_sharded) << value.name;
    for (const auto& unit : resolved.units) {
      for (const auto& parameter : unit.parameters) {
        EXPECT_FALSE(parameter.tp || parameter.partial_under_sequence_parallel) << parameter.name;
      }
    }
  }
}

TEST(PlacedGraph, KeepsWhatThePolicyUses) {
  const GraphSpec graph = bert();
  GraphSpec all = graph;
  all.tensor = sharing_of(policy(true), 2);
  EXPECT_EQ(resolved_graph(graph, policy(true), 2), all);
  const auto without_sequence = resolved_graph(graph, policy(false), 2);
  EXPECT_FALSE(without_sequence.value("hidden.1").sequence_sharded);
  EXPECT_FALSE(without_sequence.parameter("layers.0.mlp.norm.bias").partial_under_sequence_parallel);
  EXPECT_TRUE(without_sequence.value("logits").tp);
  EXPECT_EQ(without_sequence.parameter("layers.0.mlp.up.bias"), graph.parameter("layers.0.mlp.up.bias"));
  const auto whole_logits = resolved_graph(graph, policy(true, false), 2);
  EXPECT_FALSE(whole_logits.value("logits").tp);
  EXPECT_TRUE(whole_logits.value("hidden.1").sequence_sharded);
  EXPECT_EQ(whole_logits.parameter("head.bias"), graph.parameter("head.bias"));
}

TEST(PlacedGraph, RefusesDegreesThatHeadsDoNotDivideInto) {
  EXPECT_EQ(degree_refusal(llama(), 3),
            "parameter layers.0.attention.wq.weight: its 4 heads cannot be shared by tp=3: each rank must hold equally "
            "many\n  fix: set tp to 1, 2 or 4");
  EXPECT_EQ(degree_refusal(gpt2(), 3),
            "parameter layers.0.attn.c_attn.weight: its 4 heads cannot be shared by tp=3: each rank must hold equally "
            "many\n  fix: set tp to 1, 2 or 4");
  EXPECT_EQ(error_text<InternalError>([] { resolved_graph(llama(), {}, 0); }), "graph \"llama\": no tp of degree 0");
}

TEST(PlacedGraph, StaysWhereItLies) {
  const auto resolved = resolved_graph(bert(), policy(false, false), 2);
  EXPECT_EQ(resolved.tensor->degree, 2);
  EXPECT_EQ(resolved_graph(resolved, policy(false, false), 2), resolved);
  for (const auto& [other, degree] : {std::pair(policy(true, true), 2), std::pair(policy(false, false), 4)}) {
    EXPECT_EQ(error_text<InternalError>([&] { resolved_graph(resolved, other, degree); }),
              "graph \"bert\" lies over 2 tp ranks by other settings");
  }
}

// Degrees that one parameter accepts and another does not are no remedy.
TEST(PlacedGraph, NamesDegreesThatEveryParameterFits) {
  LlamaConfig config = test::small_llama();
  config.num_attention_heads = 6;
  config.hidden_size = 12;
  EXPECT_EQ(degree_refusal(llama_spec(config, small_work()), 4),
            "parameter layers.0.attention.wq.weight: its 6 heads cannot be shared by tp=4: each rank must hold equally "
            "many\n  fix: set tp to 1, 2 or 6");
  EXPECT_EQ(
      degree_refusal(llama_spec(config, small_work()), 3),
      "parameter layers.0.attention.wk.weight: its 2 heads cannot be shared by tp=3: each rank must hold one, and "
      "only key/value heads may be held in copies, by a multiple of them\n  fix: set tp to 1, 2 or 6");
}

TEST(PlacedGraph, HoldsOnlyKeyAndValueHeadsInCopies) {
  const auto resolved = resolved_graph(llama(), policy(true), 4);
  EXPECT_EQ(copy_holders(resolved.parameter("layers.0.attention.wk.weight"), 4, 3), (std::vector<Range>{{2, 4}}));
  EXPECT_EQ(copy_holders(resolved.parameter("layers.0.attention.wq.weight"), 4, 3), (std::vector<Range>{{3, 4}}));
  // 8 is a multiple of the 4 heads, but a sum over copies would count them twice.
  EXPECT_EQ(
      degree_refusal(llama(), 8),
      "parameter layers.0.attention.wo.weight: its 4 heads cannot be shared by tp=8: each rank must hold one, and "
      "only key/value heads may be held in copies, by a multiple of them\n  fix: set tp to 1, 2 or 4");
  LlamaConfig few_words = test::small_llama();
  few_words.vocab_size = 2;
  EXPECT_EQ(
      degree_refusal(llama_spec(few_words, small_work()), 4),
      "parameter embed.weight: its 2 entries cannot be shared by tp=4: each rank must hold one, and only key/value "
      "heads may be held in copies, by a multiple of them\n  fix: set tp to 1 or 2");
}

TEST(PlacedGraph, CutsVocabularyAndInnerChannelsUnevenly) {
  LlamaConfig config = test::small_llama();
  config.num_attention_heads = config.num_key_value_heads = 3;
  config.hidden_size = 12;
  const auto resolved = resolved_graph(llama_spec(config, small_work()), policy(false), 3);
  EXPECT_EQ(local_parameter(resolved.parameter("embed.weight"), 3, 0).shape, (Shape{3, 12}));
  EXPECT_EQ(local_parameter(resolved.parameter("embed.weight"), 3, 2).shape, (Shape{4, 12}));
  EXPECT_EQ(local_parameter(resolved.parameter("layers.0.mlp.w2.weight"), 3, 2).shape, (Shape{12, 4}));
}

}  // namespace tensor_policy_test
}  // namespace orthant
