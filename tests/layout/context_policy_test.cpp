#include "orthant/layout/context_policy.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"

namespace orthant {
namespace context_policy_test {

GraphSpec llama(std::int64_t heads, std::int64_t kv_heads, std::int64_t sequence) {
  LlamaConfig config = llama_preset("llama-tiny");
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.hidden_size = 8 * heads;
  return build_spec(config, {.rows = 2, .sequence = sequence});
}

TEST(ContextPolicy, CutsRowsInZigzagUnderACausalMaskWhereKeysTravel) {
  for (const ContextWay way : {ContextWay::ring, ContextWay::gather}) {
    EXPECT_EQ(with_shared_rows(llama(4, 2, 64), way, 4).context, (ContextSharing{4, way, true}));
  }
  BertModelConfig config;
  config.encoder = bert_preset("bert-tiny");
  const auto bert = build_spec(config, {.rows = 2, .sequence = 64});
  EXPECT_EQ(with_shared_rows(bert, ContextWay::ring, 4).context, (ContextSharing{4, ContextWay::ring, false}));
  EXPECT_EQ(with_shared_rows(llama(4, 2, 64), ContextWay::all_to_all, 4).context,
            (ContextSharing{4, ContextWay::all_to_all, false}));
  EXPECT_EQ(with_shared_rows(llama(4, 2, 64), ContextWay::ring, 1), llama(4, 2, 64));
}

TEST(ContextPolicy, ChoosesAllToAllForManyKeyHeadsAndARingForFew) {
  EXPECT_EQ(chosen_way(llama(16, 16, 256), 8), ContextWay::all_to_all);
  EXPECT_EQ(chosen_way(llama(16, 1, 256), 4), ContextWay::ring);
  EXPECT_EQ(chosen_way(llama(6, 6, 256), 4), ContextWay::ring);  // 4 does not divide the heads
}

TEST(ContextPolicy, RefusesRowsOfWhichARankWouldHaveNoToken) {
  const auto text = error_text<ConfigError>([] { with_shared_rows(llama(4, 2, 3), ContextWay::ring, 4); });
  EXPECT_NE(text.find("rows of 3 tokens over cp=4: a chunk of them would have none"), std::string::npos) << text;
  EXPECT_NE(text.find("tokens or more, or a smaller cp"), std::string::npos) << text;
}

TEST(ContextPolicy, RefusesAProgramsOwnGraph) {
  GraphSpec graph = llama(4, 2, 64);
  graph.values[1].opaque = true;
  const auto text = error_text<ConfigError>([&] { with_shared_rows(graph, {}, 2); });
  EXPECT_NE(text.find("value hidden.1: units of a program's own graph do not say how cp=2 would cut their rows"),
            std::string::npos)
      << text;
}

}  // namespace context_policy_test
}  // namespace orthant
