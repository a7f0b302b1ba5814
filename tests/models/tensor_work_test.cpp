// What the models declare for tensor parallelism, and what their units cost on one of its ranks.
#include <gtest/gtest.h>

#include <set>

#include "models/small_models.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace tensor_work_test {

using test::small_work;
using Names = std::set<std::string>;
using Kept = std::array<std::int64_t, 3>;

constexpr TensorSharing kPlain{.degree = 2};
constexpr TensorSharing kLoss{.degree = 2, .loss_parallel = true};
constexpr TensorSharing kSequence{.degree = 2, .sequence_parallel = true};
constexpr TensorSharing kRegather{.degree = 2, .sequence_parallel = true, .regather = true};

std::vector<GraphSpec> all_models(const WorkSize& work) {
  return {llama_spec(test::small_llama(), work),           gpt2_spec(test::small_gpt2(), work),
          gpt2_spec(test::small_gpt2(false), work),        bert_model_spec(test::small_bert(), work),
          encoder_lm_spec(test::small_encoder_lm(), work), trimodal_spec(test::small_trimodal(), work),
          trimodal_spec(test::small_trimodal(true), work), bert_forward_spec(test::small_bert(), work, true)};
}

Names tables_of(const GraphSpec& spec) {
  Names names;
  for (const UnitSpec& unit : spec.units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.table) names.insert(parameter.name);
    }
  }
  return names;
}

TEST(TensorDeclarations, EveryLookupTableIsOne) {
  const WorkSize work = small_work();
  EXPECT_EQ(tables_of(llama_spec(test::small_llama(), work)), (Names{"embed.weight"}));
  EXPECT_EQ(tables_of(gpt2_spec(test::small_gpt2(false), work)), (Names{"embed.wte.weight", "embed.wpe.weight"}));
  EXPECT_EQ(tables_of(encoder_lm_spec(test::small_encoder_lm(), work)), (Names{"embed.weight"}));
  EXPECT_EQ(tables_of(bert_model_spec(test::small_bert(), work)),
            (Names{"embed.word.weight", "embed.position.weight", "embed.token_type.weight"}));
  EXPECT_EQ(tables_of(trimodal_spec(test::small_trimodal(true), work)),
            (Names{"primary.embed.word.weight", "primary.embed.position.weight", "primary.embed.token_type.weight"}));
}

TEST(TensorDeclarations, ValuesWithTokensNameTheFieldThatTheyComeFrom) {
  for (const GraphSpec& spec : all_models(small_work())) {
    for (const ValueSpec& value : spec.values) {
      EXPECT_EQ(!value.tokens_of.empty(), value.shape.size() == 3) << spec.name << " " << value.name;
      EXPECT_EQ(value.sequence_sharded, value.shape.size() == 3 && !value.tp) << spec.name << " " << value.name;
      if (value.tokens_of.empty()) continue;
      ASSERT_TRUE(spec.is_batch_field(value.tokens_of)) << value.tokens_of;
      const Shape& tokens = spec.value(value.tokens_of).shape;
      EXPECT_EQ(tokens, (Shape{value.shape[0], value.shape[1]})) << spec.name << " " << value.name;
    }
  }
  const GraphSpec towers = trimodal_spec(test::small_trimodal(), small_work());
  EXPECT_EQ(towers.value("primary.hidden.1").tokens_of, "primary_ids");
  EXPECT_EQ(towers.value("secondary.hidden.2").tokens_of, "secondary_ids");
  EXPECT_EQ(bert_model_spec(test::small_bert(), small_work()).value("logits").tokens_of, "input_ids");
}

// Whole parameters are partial exactly where tokens are cut: everywhere but in poolers, the table's part and fusion.
TEST(TensorDeclarations, WholeParametersOnTokensArePartial) {
  for (const GraphSpec& spec : all_models(small_work())) {
    for (const UnitSpec& unit : spec.units) {
      const bool on_rows = unit.kind.ends_with(".pooler") || unit.kind.starts_with("trimodal.");
      for (const ParameterSpec& parameter : unit.parameters) {
        EXPECT_EQ(parameter.partial_under_sequence_parallel, !parameter.tp && !on_rows) << parameter.name;
        if (on_rows) EXPECT_FALSE(parameter.tp) << parameter.name;
      }
    }
  }
}

TEST(TensorWork, OneRankCostsWhatTheModelCosts) {
  const auto plain = all_models(small_work());
  const auto one = all_models(small_work({.sequence_parallel = true, .regather = true, .loss_parallel = true}));
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i], one[i]) << plain[i].name;
}

TEST(TensorWork, ChangesCostsAlone) {
  const auto plain = all_models(small_work());
  auto cut = all_models(small_work(kRegather));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NE(plain[i], cut[i]) << plain[i].name;
    for (std::size_t u = 0; u < cut[i].units.size(); ++u) cut[i].units[u].cost = plain[i].units[u].cost;
    EXPECT_EQ(plain[i], cut[i]) << plain[i].name;
  }
}

UnitCost llama_cost(const char* unit, const TensorSharing& tensor) {
  return llama_spec(test::small_llama(), small_work(tensor)).unit(unit).cost;
}

// 6 tokens, 8 wide, float32. On one of two ranks: 2 heads of 2 channels, 1 key/value head, 5 inner, 6 of 11 words.
TEST(TensorWork, CountsALlamaLayerByHand) {
  const UnitCost plain = llama_cost("layers.0", kPlain);
  const double products = 2.0 * 6 * 8 * (4 + 2 + 2 + 4 + 3 * 5);
  const double attention = 2.0 * 2 * 2 * 2 * (3 * 3) * 2 / 2;
  EXPECT_EQ(plain.weight_flops, products);
  EXPECT_EQ(plain.forward_flops, products + attention);
  EXPECT_EQ(plain.input_flops, products + 2 * attention);
  EXPECT_EQ(plain.output_bytes, 6 * 8 * 4);
  // x, sum, both normed; q, k, v; gate and up; statistics of two norms. Besides: heads' output, and their statistics.
  const std::int64_t selective = 6 * (4 * 8 + 4 + 2 + 2 + 10 + 2) * 4;
  EXPECT_EQ(plain.kept_bytes, (Kept{selective + 6 * (4 + 2) * 4, selective, 6 * 8 * 4}));
  // Inputs and output gradients of: two norms, q k v, output, gate and up, down.
  EXPECT_EQ(plain.deferred_bytes, 6 * (4 * 8 + (8 + 8) + (4 + 8) + (8 + 10) + (10 + 8) + 2) * 4);
}

TEST(TensorWork, SequenceParallelismKeepsOwnTokensBetweenProducts) {
  const UnitCost cut = llama_cost("layers.0", kSequence);
  // 3 tokens of x, sum and statistics; the normed ones are gathered.
  const std::int64_t selective = (3 * (2 * 8 + 2) + 6 * (2 * 8 + 8 + 10)) * 4;
  EXPECT_EQ(cut.kept_bytes, (Kept{selective + 6 * (4 + 2) * 4, selective, 3 * 8 * 4}));
  EXPECT_EQ(cut.output_bytes, 3 * 8 * 4);
  EXPECT_EQ(cut.forward_flops, llama_cost("layers.0", kPlain).forward_flops);
  const std::int64_t regathered = (3 * (4 * 8 + 2) + 6 * (8 + 10)) * 4;
  EXPECT_EQ(llama_cost("layers.0", kRegather).kept_bytes, (Kept{regathered + 6 * 6 * 4, regathered, 3 * 8 * 4}));
}

// Norms have own tokens, and so have biases of row products (Llama has none), whose weights take gathered gradients.
TEST(TensorWork, SequenceParallelismDefersOwnTokensAndGatheredGradients) {
  const std::int64_t norms = 3 * (4 * 8 + 2);
  EXPECT_EQ(llama_cost("layers.0", kSequence).deferred_bytes,
            (norms + 6 * (8 + 8) + 6 * (4 + 8) + 6 * (8 + 10) + 6 * (10 + 8)) * 4);
  EXPECT_EQ(llama_cost("layers.0", kRegather).deferred_bytes,
            (norms + (3 * 8 + 6 * 8) + 6 * (4 + 8) + (3 * 8 + 6 * 10) + 6 * (10 + 8)) * 4);
  EXPECT_EQ(llama_cost("head", kSequence).deferred_bytes, (3 * (8 + 8 + 1) + 6 * (8 + 6)) * 4);
  EXPECT_EQ(llama_cost("head", kRegather).deferred_bytes, (3 * (8 + 8 + 1) + 3 * 8 + 6 * 6) * 4);
  EXPECT_EQ(llama_cost("embed", kSequence).deferred_bytes, 6 * 8 * 4) << "the table is cut: all tokens";
  const GraphSpec gpt2 = gpt2_spec(test::small_gpt2(), small_work(kSequence));
  EXPECT_EQ(gpt2.unit("embed").cost.deferred_bytes, (6 * 8 + 3 * 8) * 4) << "that of positions is not";
}

TEST(TensorWork, CountsTheLargestPartsAndCopiesOfHeads) {
  // 4 ranks: one head each, its key/value head in a copy, 3 of 10 inner channels, 2 of 6 tokens.
  const UnitCost cut = llama_cost("layers.0", {.degree = 4, .sequence_parallel = true});
  EXPECT_EQ(cut.weight_flops, 2.0 * 6 * 8 * (2 + 2 + 2 + 2 + 3 * 3));
  EXPECT_EQ(cut.kept_bytes[1], (2 * (2 * 8 + 2) + 6 * (2 * 8 + 6 + 6)) * 4);
}

TEST(TensorWork, CountsHeadAndLossByHand) {
  const double flops = 2.0 * 6 * 8 * 6;
  const auto always = [](std::int64_t floats) { return Kept{floats * 4, floats * 4, floats * 4}; };
  EXPECT_EQ(llama_cost("head", kPlain),
            (UnitCost{flops, flops, flops, always(6 * (8 + 8 + 1)), 6 * (8 + 8 + 1 + 8 + 6) * 4, 6 * 11 * 4}));
  EXPECT_EQ(llama_cost("loss", kPlain).kept_bytes, always(6 * (11 + 1))) << "logits, and a number per token";
  EXPECT_EQ(llama_cost("head", kLoss).output_bytes, 6 * 6 * 4);
  EXPECT_EQ(llama_cost("loss", kLoss).kept_bytes, always(6 * (6 + 1)));
  EXPECT_EQ(llama_cost("head", kSequence).kept_bytes, always(3 * (8 + 1) + 6 * 8));
  EXPECT_EQ(llama_cost("head", kRegather).kept_bytes, always(3 * (8 + 8 + 1)));
  EXPECT_EQ(llama_cost("embed", kSequence).output_bytes, 3 * 8 * 4);
}

TEST(TensorWork, CountsAGpt2LayerByHand) {
  const auto cost = [](const TensorSharing& tensor) {
    return gpt2_spec(test::small_gpt2(), small_work(tensor)).unit("layers.1").cost;
  };
  EXPECT_EQ(cost(kPlain).weight_flops, 2.0 * 6 * 8 * (12 + 4 + 5 + 5));
  EXPECT_EQ(cost(kPlain).kept_bytes[0], 6 * (4 * 8 + 12 + 5 + 4 + 4 + 2) * 4);
  EXPECT_EQ(cost(kSequence).kept_bytes[0], (3 * (2 * 8 + 4) + 6 * (2 * 8 + 12 + 5 + 4 + 2)) * 4);
  EXPECT_EQ(cost(kRegather).kept_bytes[0], (3 * (4 * 8 + 4) + 6 * (12 + 5 + 4 + 2)) * 4);
  EXPECT_EQ(cost(kPlain).deferred_bytes, 6 * (4 * 8 + (8 + 12) + (4 + 8) + (8 + 5) + (5 + 8) + 4) * 4);
}

TEST(TensorWork, CountsPostNormLayersByHand) {
  const auto check = [](const auto& cost) {
    EXPECT_EQ(cost(kPlain).weight_flops, 2.0 * 6 * 8 * (4 * 4 + 2 * 5));
    // Input, two sums, a norm; q, k, v; up; four statistics. Besides: heads' output and two statistics.
    const std::int64_t heads = 6 * (4 + 2) * 4;
    const std::int64_t plain = 6 * (4 * 8 + 12 + 5 + 4) * 4;
    EXPECT_EQ(cost(kPlain).kept_bytes, (Kept{plain + heads, plain, 6 * 8 * 4}));
    // The input and the norm are gathered, or kept as the rank's own.
    const std::int64_t cut = (3 * (2 * 8 + 4) + 6 * (2 * 8 + 12 + 5)) * 4;
    EXPECT_EQ(cost(kSequence).kept_bytes, (Kept{cut + heads, cut, 3 * 8 * 4}));
    const std::int64_t regathered = (3 * (4 * 8 + 4) + 6 * (12 + 5)) * 4;
    EXPECT_EQ(cost(kRegather).kept_bytes, (Kept{regathered + heads, regathered, 3 * 8 * 4}));
    const std::int64_t norms = 4 * 8 + 4;
    EXPECT_EQ(cost(kPlain).deferred_bytes, 6 * (norms + (8 + 12) + (4 + 8) + (8 + 5) + (5 + 8)) * 4);
    EXPECT_EQ(cost(kSequence).deferred_bytes,
              (3 * norms + 6 * (8 + 12) + (6 * (4 + 8) + 3 * 8) + 6 * (8 + 5) + (6 * (5 + 8) + 3 * 8)) * 4);
  };
  check(
      [](const auto& tensor) { return bert_model_spec(test::small_bert(), small_work(tensor)).unit("layers.0").cost; });
  check([](const auto& tensor) {
    return encoder_lm_spec(test::small_encoder_lm(), small_work(tensor)).unit("layers.0").cost;
  });
  check([](const auto& tensor) {
    return trimodal_spec(test::small_trimodal(), small_work(tensor)).unit("primary.layers.0").cost;
  });
}

TEST(TensorWork, CountsTheUnitsAroundPostNormLayers) {
  const auto bert = [](const char* unit, const TensorSharing& tensor) {
    return bert_model_spec(test::small_bert(), small_work(tensor)).unit(unit).cost;
  };
  EXPECT_EQ(bert("embed", kPlain).kept_bytes[0], 6 * (8 + 2) * 4);
  EXPECT_EQ(bert("embed", kSequence).kept_bytes[0], 3 * (8 + 2) * 4);
  EXPECT_EQ(bert("head", kPlain).forward_flops, 2.0 * 6 * 8 * (8 + 6));
  EXPECT_EQ(bert("head", kSequence).forward_flops, 2.0 * 3 * 8 * 8 + 2.0 * 6 * 8 * 6);
  EXPECT_EQ(bert("head", kSequence).kept_bytes[0], (3 * (2 * 8 + 2) + 6 * 8) * 4) << "its activation is made again";
  EXPECT_EQ(bert("head", kRegather).kept_bytes[0], 3 * (3 * 8 + 2) * 4);
  EXPECT_EQ(bert("embed", kSequence).deferred_bytes, (3 * (8 + 8 + 2) + 3 * 8 + 6 * 8) * 4);
  EXPECT_EQ(bert("head", kSequence).deferred_bytes, (3 * (4 * 8 + 2) + 6 * (8 + 6)) * 4);
  const auto head = [](const TensorSharing& tensor) {
    return encoder_lm_spec(test::small_encoder_lm(), small_work(tensor)).unit("head").cost;
  };
  EXPECT_EQ(head(kSequence).kept_bytes[0], 6 * 8 * 4);
  EXPECT_EQ(head(kRegather).kept_bytes[0], 3 * 8 * 4);
  EXPECT_EQ(head(kRegather).deferred_bytes, (3 * 8 + 6 * 6) * 4);
}

TEST(TensorWork, PoolersTableAndFusionAreWholeOnEveryRank) {
  const GraphSpec plain = trimodal_spec(test::small_trimodal(), small_work());
  const GraphSpec cut = trimodal_spec(test::small_trimodal(), small_work({2, true, true, true}));
  for (const auto* unit : {"primary.pooler", "secondary.pooler", "tabular", "fusion", "loss"}) {
    EXPECT_EQ(plain.unit(unit).cost, cut.unit(unit).cost) << unit;
  }
  // 10 tokens in the second tower.
  EXPECT_EQ(cut.unit("secondary.embed").cost.output_bytes, 5 * 8 * 4);
}

TEST(TensorWork, AnOddTokenBelongsToTheLargestPart) {
  const WorkSize work{.rows = 1, .sequence = 5, .tensor = kSequence};
  EXPECT_EQ(llama_spec(test::small_llama(), work).unit("embed").cost.output_bytes, 3 * 8 * 4);
}

}  // namespace tensor_work_test
}  // namespace orthant
