#include "orthant/models/freeze.h"

#include <gtest/gtest.h>

#include "models/model_text.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/totals.h"

namespace orthant {
namespace freeze_test {

GraphSpec tiny(bool tied = false) {
  LlamaConfig config = llama_preset("llama-tiny");
  config.tie_word_embeddings = tied;
  return llama_spec(config, work_of(1, 4));
}

TEST(Freeze, MarksOnlyWhatMatches) {
  GraphSpec spec = tiny();
  freeze(spec, {"layers.0.*", "embed.weight"});
  for (const auto& unit : spec.units) {
    const bool frozen = unit.name == "layers.0" || unit.name == "embed";
    for (const auto& parameter : unit.parameters) EXPECT_EQ(parameter.trainable, !frozen) << parameter.name;
  }
  EXPECT_EQ(totals(spec).parameters - totals(spec).trainable,
            spec.unit("layers.0").num_parameters() + spec.unit("embed").num_parameters());
}

TEST(Freeze, TakesProductsOfFrozenWeightsOutOfTheBackward) {
  const GraphSpec before = tiny();
  GraphSpec spec = before;
  freeze(spec, {"layers.0.mlp.*"});
  freeze(spec, {"layers.1.*"});
  // 4 tokens of wq 64x64, wk and wv 32x64, wo 64x64.
  EXPECT_DOUBLE_EQ(spec.unit("layers.0").cost.weight_flops, 2.0 * 4 * (2 * 64 * 64 + 2 * 32 * 64));
  EXPECT_EQ(spec.unit("layers.1").cost.weight_flops, 0);
  EXPECT_EQ(spec.unit("head").cost, before.unit("head").cost);
  EXPECT_EQ(spec.unit("layers.0").cost.forward_flops, before.unit("layers.0").cost.forward_flops);
  EXPECT_EQ(spec.unit("layers.0").cost.input_flops, before.unit("layers.0").cost.input_flops);
}

TEST(Freeze, DefersNothingWhereNothingIsTrained) {
  const GraphSpec before = tiny(/*tied=*/true);
  GraphSpec spec = before;
  freeze(spec, {"embed.*", "layers.0.*", "layers.1.mlp.*"});
  EXPECT_EQ(spec.unit("embed").cost.deferred_bytes, 0);
  EXPECT_EQ(spec.unit("layers.0").cost.deferred_bytes, 0);
  EXPECT_EQ(spec.unit("layers.1").cost.deferred_bytes, before.unit("layers.1").cost.deferred_bytes) << "a bound";
  EXPECT_GT(spec.unit("head").cost.deferred_bytes, 0) << "its norm is trained";
  freeze(spec, {"head.*"});
  EXPECT_EQ(spec.unit("head").cost.deferred_bytes, 0);
}

TEST(Freeze, ReachesBorrowersOfATiedParameter) {
  GraphSpec spec = tiny(/*tied=*/true);
  ASSERT_GT(spec.unit("head").cost.weight_flops, 0);
  freeze(spec, {"embed.*"});
  EXPECT_EQ(spec.unit("head").cost.weight_flops, 0);
}

TEST(Freeze, RefusesAPatternThatMatchesNothing) {
  GraphSpec spec = tiny();
  EXPECT_EQ(error_text<ConfigError>([&] { freeze(spec, {"embed.*", "encoder.*"}); }),
            "freeze: pattern \"encoder.*\" matches no parameter of llama\n"
            "  fix: patterns match whole names, * is any text: embed.*, layers.*, head.* together match all");
}

TEST(Freeze, NoPatternsChangeNothing) {
  GraphSpec spec = tiny();
  freeze(spec, {});
  EXPECT_EQ(spec, tiny());
}

}  // namespace freeze_test
}  // namespace orthant
