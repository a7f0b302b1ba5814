// Weights that every head is used with: partial gradients where heads are cut over tp.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "models/small_models.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace head_partials_test {

LlamaConfig small_qwen3() {
  LlamaConfig config = test::small_llama();
  config.variant = &kQwen3;
  config.head_dim = 6;
  return config;
}

// Where heads are cut a rank sees its own alone, with and without sequence parallelism; copies of key/value heads, too.
TEST(HeadPartials, NormsOfHeadsHavePartialGradientsWhereHeadsAreCut) {
  const GraphSpec spec = llama_spec(small_qwen3(), test::small_work());
  const auto partial = [&](const TensorPolicy& policy, int tp) {
    const GraphSpec graph = resolved_graph(spec, policy, tp);
    const bool query = graph.parameter("layers.0.attention.q_norm.weight").partial_under_sequence_parallel;
    EXPECT_EQ(graph.parameter("layers.1.attention.k_norm.weight").partial_under_sequence_parallel, query);
    return query;
  };
  EXPECT_FALSE(partial({}, 1));
  EXPECT_FALSE(partial({.sequence_parallel = true}, 1));
  EXPECT_TRUE(partial({}, 2));
  EXPECT_TRUE(partial({}, 4));
  EXPECT_TRUE(partial({.sequence_parallel = true}, 2));
  EXPECT_FALSE(partial({.styles = {{"attention", TensorStyle::replicate}}}, 2));
}

TEST(HeadPartials, NormsOfHeadsTakeNoStyleOfTheirOwn) {
  const auto refusal = [](TensorStyle style) {
    const TensorPolicy policy = {.sequence_parallel = true, .styles = {{"q_norm", style}}};
    return error_text<ConfigError>([&] { resolved_graph(llama_spec(small_qwen3(), test::small_work()), policy, 2); });
  };
  EXPECT_EQ(refusal(TensorStyle::sequence),
            "parallel.plan: \"q_norm\" cannot be sequence: layers.0.attention.q_norm.weight works on heads, which have "
            "all tokens\n  fix: leave it out of parallel.plan");
  EXPECT_NE(refusal(TensorStyle::column).find("is used with all channels on every rank"), std::string::npos);
}

}  // namespace head_partials_test
}  // namespace orthant
