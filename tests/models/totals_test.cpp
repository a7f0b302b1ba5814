#include "orthant/models/totals.h"

#include <gtest/gtest.h>

#include "models/model_text.h"
#include "orthant/models/freeze.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace totals_test {

StateTypes types_of(DType parameters, DType compute, DType reduce, int moments) {
  return {parameters, compute, reduce, moments};
}

TEST(Totals, AddUpUnits) {
  const GraphSpec spec = llama_spec(llama_preset("llama-tiny"), work_of(2, 8));
  const GraphTotals sums = totals(spec);
  EXPECT_EQ(sums.parameters, spec.num_parameters());
  EXPECT_EQ(sums.trainable, spec.num_parameters());
  // 16 tokens; two layers and the head; attention 2 * 2 * 2 rows * 4 heads * 64 * 16 / 2 each.
  const double products = 2.0 * 16 * (2 * (12288 + 36864) + 64 * 256);
  const double attention = 2 * 16384.0;
  EXPECT_DOUBLE_EQ(sums.forward_flops, products + attention);
  EXPECT_DOUBLE_EQ(sums.total_flops, 3 * (products + attention));
}

TEST(Totals, CountTiedParametersOnce) {
  LlamaConfig config = llama_preset("llama-tiny");
  config.tie_word_embeddings = true;
  const GraphSpec spec = llama_spec(config, work_of(1, 1));
  EXPECT_EQ(totals(spec).parameters, spec.num_parameters());
  EXPECT_EQ(state_bytes(spec.unit("head"), {}).total(), 64 * 16);
}

TEST(StateBytes, FollowPrecisionAndOptimizer) {
  const GraphSpec spec = llama_spec(llama_preset("llama-tiny"), work_of(1, 1));
  const UnitSpec& layer = spec.unit("layers.0");
  const std::int64_t n = layer.num_parameters();
  EXPECT_EQ(state_bytes(layer, {}), (StateBytes{4 * n, 0, 4 * n, 8 * n}));
  const auto mixed = types_of(DType::float32, DType::bfloat16, DType::float32, 2);
  EXPECT_EQ(state_bytes(layer, mixed), (StateBytes{4 * n, 2 * n, 4 * n, 8 * n}));
  EXPECT_EQ(state_bytes(layer, mixed).total(), 18 * n);
  auto split = mixed;
  split.splits_parameters = true;
  EXPECT_EQ(state_bytes(layer, split), (StateBytes{2 * n, 2 * n, 4 * n, 8 * n}));
  const auto narrow = types_of(DType::bfloat16, DType::bfloat16, DType::bfloat16, 0);
  EXPECT_EQ(state_bytes(layer, narrow), (StateBytes{2 * n, 0, 2 * n, 0}));
}

TEST(StateBytes, FrozenParametersHaveNoGradientAndNoMoments) {
  GraphSpec spec = llama_spec(llama_preset("llama-tiny"), work_of(1, 1));
  freeze(spec, {"head.weight"});
  EXPECT_EQ(state_bytes(spec.unit("head"), {}), (StateBytes{(16384 + 64) * 4, 0, 64 * 4, 64 * 8}));
}

}  // namespace totals_test
}  // namespace orthant
