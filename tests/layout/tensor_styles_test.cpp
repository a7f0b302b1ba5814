#include "orthant/layout/tensor_policy.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "models/small_models.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace tensor_styles_test {

using test::bert;
using test::gpt2;
using test::llama;
using test::small_work;
using Styles = std::vector<std::pair<std::string, std::string>>;

constexpr TensorPolicy policy(bool sequence) {
  return {.sequence_parallel = sequence, .loss_parallel = true};
}

// Styles as users write them.
GraphSpec styled(const GraphSpec& graph, const Styles& styles, bool sequence = false, int degree = 2) {
  TensorPolicy with = policy(sequence);
  for (const auto& [pattern, style] : styles) with.styles.emplace_back(pattern, parse_tensor_style(style));
  return resolved_graph(graph, with, degree);
}

std::string refusal(const GraphSpec& graph, const Styles& styles, bool sequence = false) {
  return error_text<ConfigError>([&] { styled(graph, styles, sequence); });
}

TEST(TensorPlan, PatternsAreWholePartsOfNames) {
  const char* name = "layers.3.attn.c_attn.weight";
  for (const auto* pattern : {"layers.3.attn.c_attn.weight", "attn.c_attn", "c_attn", "attn", "layers", "layers.3",
                              "weight", "layers.*.c_attn", "*.weight", "layers.3.*", "*", "attn.c_*", "layers.*"}) {
    EXPECT_TRUE(matches_style_pattern(pattern, name)) << pattern;
  }
  for (const auto* pattern : {"", "attn.c", "c_attn.weigh", "ttn", "layers.3.c_attn", "layers.30", "*.bias",
                              "attn.c_attn.", ".attn", "layers.3.attn.c_attn.weight.more"}) {
    EXPECT_FALSE(matches_style_pattern(pattern, name)) << pattern;
  }
}

// See Note [Tied heads].
TEST(TensorPlan, ATiedHeadIsTheTableByAnotherName) {
  const GraphSpec graph = gpt2(true);
  const GraphSpec expected = resolved_graph(graph, policy(false), 2);
  EXPECT_EQ(styled(graph, {{"wte", "colwise"}, {"lm_head", "rowwise"}}), expected);
  EXPECT_EQ(styled(graph, {{"lm_head", "rowwise"}, {"wte", "colwise"}}), expected);
  EXPECT_EQ(styled(graph, {{"lm_head", "column"}}), expected);
  EXPECT_EQ(styled(graph, {{"wte", "row"}, {"lm_head.weight", "column"}}), expected);
  EXPECT_NE(refusal(graph, {{"wte", "column"}}).find("\"wte\" cannot be column"), std::string::npos);
  EXPECT_NE(refusal(graph, {{"wte", "column"}, {"lm_head", "column"}}).find("\"lm_head\" matches no parameter"),
            std::string::npos);
  EXPECT_NE(refusal(graph, {{"lm_head", "row"}}).find("\"lm_head\" matches no parameter"), std::string::npos);
}

// The `parallel.plan` of seed 002, whose names are gpt2's.
TEST(TensorPlan, SeedTwosLayersAreTheDefaultAndItsEndsAreRefused) {
  const GraphSpec graph = gpt2(false);
  const Styles layers = {{"attn.c_attn", "colwise"}, {"mlp.c_fc", "colwise"}, {"mlp.c_proj", "rowwise"}};
  for (const bool sequence : {false, true}) {
    EXPECT_EQ(styled(graph, layers, sequence), resolved_graph(graph, policy(sequence), 2));
  }
  auto whole = layers;
  whole.emplace_back("wte", "colwise");
  EXPECT_EQ(refusal(graph, whole),
            "parallel.plan: \"wte\" cannot be column: embed.wte.weight is a table, which column cuts over channels: "
            "each rank would look up a part of every vector, and what follows needs all of it\n"
            "  fix: use row, which cuts it over its entries (the default), or replicate");
  whole.back() = {"lm_head", "rowwise"};
  EXPECT_EQ(refusal(graph, whole),
            "parallel.plan: \"lm_head\" cannot be row: head.lm_head.weight would need its input cut over channels, and "
            "that is whole on every rank\n  fix: use column (the default)");
  EXPECT_EQ(styled(graph, {{"wte", "row"}, {"lm_head", "column"}}), resolved_graph(graph, policy(false), 2));
}

// The `parallel.plan` of seed 003, first with llama's names.
TEST(TensorPlan, SeedThreesPlanIsTheDefault) {
  for (const bool sequence : {false, true}) {
    EXPECT_EQ(styled(llama(),
                     {{"attention.wq", "colwise"},
                      {"attention.wk", "colwise"},
                      {"attention.wv", "colwise"},
                      {"attention.wo", "rowwise"},
                      {"mlp.w1", "colwise"},
                      {"mlp.w2", "rowwise"}},
                     sequence),
              resolved_graph(llama(), policy(sequence), 2));
  }
  EXPECT_EQ(refusal(llama(), {{"attn.qkv_proj", "colwise"}}),
            "parallel.plan: \"attn.qkv_proj\" matches no parameter of llama\n"
            "  fix: one of embed, attention.wq, attention.wk, attention.wv, attention.wo, mlp.w1, mlp.w3, mlp.w2, "
            "norm1, norm2, head, norm");
  EXPECT_NE(refusal(llama(), {{"atention.wq", "colwise"}}).find("did you mean \"attention.wq\"?"), std::string::npos);
}

TEST(TensorPlan, AcceptsEveryDeclaredStyle) {
  for (const auto& graph : {llama(), gpt2(), gpt2(false), bert(), trimodal_spec(test::small_trimodal(), small_work()),
                            encoder_lm_spec(test::small_encoder_lm(), small_work())}) {
    Styles styles;
    for (const auto& unit : graph.units) {
      for (const auto& parameter : unit.parameters) {
        if (parameter.partial_under_sequence_parallel) styles.emplace_back(parameter.name, "sequence");
        if (parameter.tp)
          styles.emplace_back(parameter.name, parameter.tp->dim == 1 || parameter.table ? "row" : "column");
        if (styles.empty() || styles.back().first != parameter.name) styles.emplace_back(parameter.name, "replicate");
      }
    }
    EXPECT_EQ(styled(graph, styles, true), resolved_graph(graph, policy(true), 2)) << graph.name;
  }
}

TEST(TensorPlan, ABiasGoesWithItsWeight) {
  EXPECT_EQ(styled(gpt2(), {{"mlp.c_proj.bias", "row"}, {"mlp.c_fc.bias", "column"}}),
            resolved_graph(gpt2(), policy(false), 2));
  EXPECT_EQ(
      refusal(gpt2(), {{"mlp.c_proj.bias", "column"}}),
      "parallel.plan: \"mlp.c_proj.bias\" cannot be column: layers.0.mlp.c_proj.bias would need all channels of "
      "its input, and layers.0.mlp.c_fc.weight gives each rank its own part of them\n  fix: use row (the default)");
}

TEST(TensorPlan, RefusesTheOtherHalfsStyle) {
  EXPECT_EQ(refusal(llama(), {{"mlp.w2", "column"}}),
            "parallel.plan: \"mlp.w2\" cannot be column: layers.0.mlp.w2.weight would need all channels of its input, "
            "and layers.0.mlp.w1.weight gives each rank its own part of them\n  fix: use row (the default)");
  EXPECT_EQ(refusal(llama(), {{"layers.1.attention.wq", "row"}}),
            "parallel.plan: \"layers.1.attention.wq\" cannot be row: layers.1.attention.wq.weight would need its input "
            "cut over channels, and that is whole on every rank, and layers.1.attention.wo.weight reads its output cut "
            "over channels\n  fix: use column (the default)");
}

TEST(TensorPlan, RefusesToCutWhatIsWhole) {
  for (const auto* style : {"column", "row"}) {
    const std::string cannot = std::string(" cannot be ") + style + ": ";
    const std::string reason =
        " is used with all channels on every rank, and nothing around it is cut to match\n"
        "  fix: name the weight that is meant, or leave it out of parallel.plan";
    EXPECT_EQ(refusal(llama(), {{"norm1", style}}),
              "parallel.plan: \"norm1\"" + cannot + "layers.0.norm1.weight" + reason);
    EXPECT_EQ(refusal(gpt2(), {{"wpe", style}}), "parallel.plan: \"wpe\"" + cannot + "embed.wpe.weight" + reason);
    EXPECT_EQ(refusal(trimodal_spec(test::small_trimodal(), small_work()), {{"fusion", style}}),
              "parallel.plan: \"fusion\"" + cannot + "fusion.hidden.weight" + reason);
  }
}

TEST(TensorPlan, SequenceNeedsSequenceParallelismAndTokens) {
  EXPECT_EQ(refusal(llama(), {{"norm1", "sequence"}}),
            "parallel.plan: \"norm1\" cannot be sequence: layers.0.norm1.weight works on all tokens while sequence "
            "parallelism is off\n  fix: set parallel.sequence_parallel to true, or leave it out of parallel.plan");
  EXPECT_EQ(refusal(llama(), {{"mlp.w1", "sequence"}}, true),
            "parallel.plan: \"mlp.w1\" cannot be sequence: layers.0.mlp.w1.weight is cut over channels and multiplies "
            "all tokens\n  fix: use column (the default)");
  EXPECT_EQ(refusal(llama(), {{"mlp.w2", "sequence"}}, true),
            "parallel.plan: \"mlp.w2\" cannot be sequence: layers.0.mlp.w2.weight is cut over channels and multiplies "
            "all tokens\n  fix: use row (the default)");
  EXPECT_EQ(refusal(llama(), {{"embed", "sequence"}}, true),
            "parallel.plan: \"embed\" cannot be sequence: embed.weight is a table that is cut over its entries, so "
            "every rank looks up all tokens\n  fix: use row (the default)");
  EXPECT_EQ(refusal(trimodal_spec(test::small_trimodal(), small_work()), {{"pooler", "sequence"}}, true),
            "parallel.plan: \"pooler\" cannot be sequence: primary.pooler.dense.weight works on values without a "
            "sequence\n  fix: leave it out of parallel.plan");
}

TEST(TensorPlan, ReplicatesWholeChains) {
  const auto mlp = styled(gpt2(), {{"layers.0.mlp", "replicate"}});
  for (const auto* name : {"c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias"}) {
    EXPECT_FALSE(mlp.parameter(std::string("layers.0.mlp.") + name).tp) << name;
    EXPECT_FALSE(mlp.parameter(std::string("layers.0.mlp.") + name).partial_under_sequence_parallel) << name;
  }
  EXPECT_TRUE(mlp.parameter("layers.1.mlp.c_fc.weight").tp);
  EXPECT_TRUE(mlp.parameter("layers.0.attn.c_attn.weight").tp);
  EXPECT_FALSE(styled(gpt2(), {{"attn", "replicate"}}).parameter("layers.1.attn.c_proj.weight").tp);
  // Heads that are whole need not be divided.
  EXPECT_NO_THROW(styled(gpt2(), {{"attn", "replicate"}}, false, 3));
}

TEST(TensorPlan, AWholeChainOnOwnTokensHasPartialGradients) {
  const auto mlp = styled(gpt2(), {{"mlp", "replicate"}}, true);
  for (const auto* name : {"c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias"}) {
    EXPECT_FALSE(mlp.parameter(std::string("layers.1.mlp.") + name).tp) << name;
    EXPECT_TRUE(mlp.parameter(std::string("layers.1.mlp.") + name).partial_under_sequence_parallel) << name;
  }
  // bert's norm lies in the same part of the layer.
  const auto post_norm = styled(bert(), {{"mlp", "replicate"}}, true);
  EXPECT_TRUE(post_norm.parameter("layers.0.mlp.norm.weight").partial_under_sequence_parallel);
  EXPECT_TRUE(post_norm.parameter("layers.0.mlp.up.bias").partial_under_sequence_parallel);
  const auto table = styled(llama(), {{"embed", "replicate"}}, true);
  EXPECT_FALSE(table.parameter("embed.weight").tp);
  EXPECT_TRUE(table.parameter("embed.weight").partial_under_sequence_parallel);
}

TEST(TensorPlan, RefusesHalfAChain) {
  EXPECT_EQ(refusal(llama(), {{"mlp.w1", "replicate"}}),
            "parallel.plan: \"mlp.w1\" cannot be replicate: layers.0.mlp.w1.weight would give every rank all channels "
            "while layers.0.mlp.w2.weight sums parts over tp: the sum would be tp times too large\n"
            "  fix: replicate all of layers.0.mlp.w1.weight, layers.0.mlp.w3.weight, layers.0.mlp.w2.weight, or none");
  EXPECT_EQ(refusal(llama(), {{"mlp.w2", "replicate"}}),
            "parallel.plan: \"mlp.w2\" cannot be replicate: layers.0.mlp.w2.weight would take all channels while "
            "layers.0.mlp.w1.weight gives each rank its own part of them\n"
            "  fix: replicate all of layers.0.mlp.w1.weight, layers.0.mlp.w3.weight, layers.0.mlp.w2.weight, or none");
  EXPECT_EQ(refusal(encoder_lm_spec(test::small_encoder_lm(), small_work()), {{"head.bias", "replicate"}}),
            "parallel.plan: \"head.bias\" cannot be replicate: head.bias would be whole while head.weight, used with "
            "it, is cut\n  fix: replicate all of head.weight, head.bias, or none");
}

TEST(TensorPlan, RefusesPatternsThatDisagree) {
  EXPECT_EQ(refusal(llama(), {{"mlp", "replicate"}, {"layers.1.mlp.w2", "row"}}),
            "parallel.plan: \"mlp\" makes layers.1.mlp.w2.weight replicate, \"layers.1.mlp.w2\" makes it row\n"
            "  fix: let the patterns of a parameter agree");
}

TEST(TensorPlan, AReplicatedHeadMakesWholeLogits) {
  const auto untied = styled(gpt2(false), {{"lm_head", "replicate"}});
  EXPECT_FALSE(untied.parameter("head.lm_head.weight").tp);
  EXPECT_FALSE(untied.value("logits").tp);
  EXPECT_TRUE(untied.parameter("embed.wte.weight").tp);
  const auto tied = styled(gpt2(), {{"wte", "replicate"}});
  EXPECT_FALSE(tied.parameter("embed.wte.weight").tp);
  EXPECT_FALSE(tied.value("logits").tp);
  EXPECT_TRUE(styled(gpt2(false), {{"wte", "replicate"}}).value("logits").tp);
}

TEST(TensorPlan, ATiedTableAndTheHeadsBiasAreWholeTogether) {
  EXPECT_EQ(refusal(bert(), {{"word", "replicate"}}),
            "parallel.plan: \"word\" cannot be replicate: embed.word.weight would be whole while head.bias, used with "
            "it, is cut\n  fix: replicate all of embed.word.weight, head.bias, or none");
  const auto both = styled(bert(), {{"word", "replicate"}, {"head.bias", "replicate"}});
  EXPECT_FALSE(both.parameter("head.bias").tp);
  EXPECT_FALSE(both.value("logits").tp);
}

TEST(TensorPlan, SharedTowersFollowTheirOwner) {
  const GraphSpec graph = trimodal_spec(test::small_trimodal(true), small_work());
  const auto resolved = styled(graph, {{"primary.layers.0.mlp", "replicate"}}, true);
  EXPECT_TRUE(resolved.parameter("primary.layers.0.mlp.up.weight").partial_under_sequence_parallel);
  EXPECT_FALSE(resolved.parameter("primary.layers.0.mlp.up.weight").tp);
  EXPECT_TRUE(styled(graph, {{"word", "replicate"}}, true)
                  .parameter("primary.embed.word.weight")
                  .partial_under_sequence_parallel);
  EXPECT_NE(refusal(graph, {{"secondary.layers.0", "replicate"}}).find("matches no parameter of trimodal"),
            std::string::npos);
}

TEST(TensorPlan, RefusesToReplicateWhatNeedsAllTokensUnderSequenceParallelism) {
  const std::string fix = "\n  fix: leave it out of parallel.plan, or set parallel.sequence_parallel to false";
  EXPECT_EQ(refusal(llama(), {{"attention", "replicate"}}, true),
            "parallel.plan: \"attention\" cannot be replicate: layers.0.attention.wq.weight is a part of attention, "
            "which needs all tokens, and a whole one would see only a rank's own under sequence parallelism" +
                fix);
  EXPECT_EQ(
      refusal(llama(), {{"head.weight", "replicate"}}, true),
      "parallel.plan: \"head.weight\" cannot be replicate: head.weight makes logits, which are of all tokens, and "
      "a whole one would see only a rank's own under sequence parallelism" +
          fix);
  EXPECT_EQ(refusal(gpt2(), {{"wte", "replicate"}}, true),
            "parallel.plan: \"wte\" cannot be replicate: embed.wte.weight makes logits, which are of all tokens, and a "
            "whole one would see only a rank's own under sequence parallelism" +
                fix);
}

TEST(TensorPlan, ReplicatedNormsNeedAllTokens) {
  EXPECT_EQ(styled(llama(), {{"norm1", "replicate"}, {"norm2", "replicate"}}),
            resolved_graph(llama(), policy(false), 2));
  EXPECT_EQ(refusal(llama(), {{"norm1", "replicate"}}, true),
            "parallel.plan: \"norm1\" cannot be replicate: layers.0.norm1.weight sees only a rank's own tokens under "
            "sequence parallelism, so its gradient is a partial sum\n"
            "  fix: use sequence (the default), or set parallel.sequence_parallel to false");
  EXPECT_EQ(refusal(gpt2(), {{"mlp.c_proj.bias", "replicate"}}, true).substr(0, 100),
            "parallel.plan: \"mlp.c_proj.bias\" cannot be replicate: layers.0.mlp.c_proj.bias sees only a rank's ow");
  EXPECT_EQ(styled(trimodal_spec(test::small_trimodal(), small_work()), {{"fusion", "replicate"}}, true),
            resolved_graph(trimodal_spec(test::small_trimodal(), small_work()), policy(true), 2));
}

}  // namespace tensor_styles_test
}  // namespace orthant
