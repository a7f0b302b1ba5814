#include "orthant/program/cost.h"

#include <gtest/gtest.h>

#include "program/compiled.h"

namespace orthant::cost_test {

std::int64_t kept_bytes(const test::Over& over, const std::vector<std::string>& operations) {
  GraphSpec graph = test::over(test::llama(), over);
  set_kept_bytes(graph, operations);
  return graph.unit("layers.1").cost.kept_bytes.front();
}

TEST(Cost, NamedOperationsKeepLess) {
  // 6 tokens; the norms make 8 channels and a statistic each.
  EXPECT_EQ(kept_bytes({}, {}) - kept_bytes({}, {"rms_norm"}), 2 * 6 * (8 + 1) * 4);
  const auto of_selective = static_cast<std::size_t>(Recompute::selective);
  EXPECT_EQ(kept_bytes({}, {"attention"}), test::llama().unit("layers.1").cost.kept_bytes.at(of_selective));
  EXPECT_EQ(kept_bytes({}, {"rotary"}), kept_bytes({}, {}));
  // Own tokens of a rank: 3. What was gathered from the norms is kept, their statistics are not.
  EXPECT_EQ(kept_bytes(test::kSp, {}) - kept_bytes(test::kSp, {"rms_norm"}), 2 * 3 * 4);
}

TEST(Cost, OtherUnitsKeepWhatTheyKept) {
  GraphSpec graph = test::over(test::llama(), {});
  const GraphSpec before = graph;
  set_kept_bytes(graph, {"rms_norm", "attention"});
  for (const char* unit : {"embed", "head", "loss"}) EXPECT_EQ(graph.unit(unit).cost, before.unit(unit).cost) << unit;
}

}  // namespace orthant::cost_test
