// What float8 costs and saves: bytes that rounding moves, memory it takes, products at the card's rate for 8 bits.
#include <gtest/gtest.h>

#include "orthant/layout/tensor_policy.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/sized_run.h"
#include "orthant/plan/estimate/unit_time.h"
#include "orthant/program/float8.h"

namespace orthant {
namespace float8_price_test {

constexpr std::int64_t kRows = 4, kSequence = 32, kTokens = kRows * kSequence, kHidden = 64, kInner = 96;

GraphSpec llama(bool float8) {
  LlamaConfig config;
  config.hidden_size = kHidden;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 4;
  config.intermediate_size = kInner;
  config.vocab_size = 64;
  config.max_position_embeddings = kSequence;
  const WorkSize work{.rows = kRows, .sequence = kSequence, .compute = DType::bfloat16};
  const GraphSpec graph = resolved_graph(build_spec(config, work), {}, 1);
  return float8 ? with_float8_products(graph) : graph;
}

SizedRun run_of(const GraphSpec& graph) {
  PlanSettings settings;
  settings.on_host = false;
  return run_sized(graph, graph.unit("layers.0"), settings);
}

TEST(Float8Price, RoundingMovesThreeBytesOfEachNumberAndFiveOfTurnedWeights) {
  const SizedRun plain = run_of(llama(false)), rounded = run_of(llama(true));
  constexpr double kWeights = kHidden * (4 * kHidden + 3 * kInner);
  constexpr double kRead = kTokens * (3 * kHidden + kInner);               // by products
  constexpr double kGradients = kTokens * (5.0 * kHidden + 2.0 * kInner);  // of their results
  EXPECT_EQ(rounded.forward_moved - plain.forward_moved, 3 * (kRead + kWeights));
  EXPECT_EQ(rounded.backward_moved - plain.backward_moved, 3 * kGradients + 5 * kWeights);
}

TEST(Float8Price, NothingMoreIsKept) {
  const SizedRun plain = run_of(llama(false)), rounded = run_of(llama(true));
  EXPECT_EQ(rounded.kept, plain.kept);
  EXPECT_EQ(rounded.deferred, plain.deferred);
  // The worst moment of a forward: without rounding the last product reads the activation and makes the output; with it
  // the activation is rounded, with a scale for each token, and is gone when the output is made.
  EXPECT_EQ(rounded.forward - plain.forward, kTokens * (kInner + 4) - kTokens * kHidden * 2);
}

TEST(Float8Price, ProductsRunAtTheCardsRateFor8Bits) {
  Hardware card = find_hardware("h200-141gb");
  EXPECT_GT(card.float8_flops, 1.8 * card.peak_flops);
  EXPECT_GT(find_hardware("h100-80gb").float8_flops, 0);
  EXPECT_EQ(find_hardware("a100-80gb").float8_flops, 0);
  card.kernel_seconds = 0;
  // 16384 x 8192 x 2048, measured with a scale for each row: 688 us in 16 bits, 370 in 8.
  const double wide = product_seconds({16384, 8192, 2048}, card, 2);
  const double narrow = product_seconds({16384, 8192, 2048, true}, card, 2);
  EXPECT_NEAR(wide / narrow, 688.0 / 370, 0.01);
  card.float8_flops = 0;
  EXPECT_EQ(product_seconds({16384, 8192, 2048, true}, card, 2), wide);
}

}  // namespace float8_price_test
}  // namespace orthant
