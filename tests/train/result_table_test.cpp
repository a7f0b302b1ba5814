#include "orthant/train/result_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace orthant {
namespace result_table_test {

RunResult sample() {
  return {.steps = 20,
          .seconds = 65,
          .first_loss = 6.9312,
          .final_loss = 0.5,
          .eval = {{"accuracy", 0.875}, {"loss", 0.25}},
          .best_reachable_accuracy = 0.9,
          .mesh = Mesh::parse("pp=2,dp=2,tp=2"),
          .output_dir = "runs/demo-1",
          .parameters = 1234567,
          .weights_hash = 0x00ab12};
}

TEST(ResultTable, AlignsItsColumns) {
  EXPECT_EQ(result_text(sample()),
            "steps          20\n"
            "time           1 min 5 s\n"
            "loss           6.9312 -> 0.5000\n"
            "eval accuracy  0.8750 (best reachable 0.9000)\n"
            "eval loss      0.2500\n"
            "parameters     1.2M (1234567)\n"
            "mesh           pp=2,dp=2,tp=2 (8 ranks)\n"
            "weights hash   000000000000ab12\n"
            "output         runs/demo-1\n");
}

TEST(ResultTable, LeavesOutWhatWasNotMeasured) {
  RunResult result = sample();
  result.eval.clear();
  result.mesh = Mesh();
  const std::string text = result_text(result);
  EXPECT_EQ(text.find("eval"), std::string::npos) << text;
  EXPECT_EQ(text.find("reachable"), std::string::npos) << text;
  EXPECT_NE(text.find("(1 rank)"), std::string::npos) << text;
}

TEST(ResultTable, HasNoLossWhereNothingWasTrained) {
  RunResult result;
  result.steps = 5;
  EXPECT_NE(result_text(result).find("none: nothing was trained\n"), std::string::npos) << result_text(result);
  EXPECT_TRUE(result_json(result).dump().starts_with(R"({"steps":5,"final_loss":null,)")) << result_json(result).dump();
}

TEST(ResultTable, ALossThatIsNoNumberIsALoss) {
  RunResult result = sample();
  result.first_loss = result.final_loss = std::nan("");
  EXPECT_NE(result_text(result).find("nan -> nan\n"), std::string::npos) << result_text(result);
}

TEST(ResultTable, DocumentIsThatOfTheContract) {
  EXPECT_EQ(result_json(sample()).dump(),
            R"({"steps":20,"final_loss":0.5,"eval":{"accuracy":0.875,"loss":0.25},)"
            R"("mesh":{"pp":2,"dp":2,"fsdp":1,"cp":1,"tp":2,"ep":1},"world_size":8,"output_dir":"runs/demo-1",)"
            R"("parameters":1234567,"weights_hash":"000000000000ab12"})");
}

TEST(ResultTable, DocumentWithoutEvaluationHasAnEmptyOne) {
  RunResult result = sample();
  result.eval.clear();
  result.final_loss = std::nan("");
  const std::string text = result_json(result).dump();
  EXPECT_NE(text.find(R"("final_loss":null,"eval":{},)"), std::string::npos) << text;
}

}  // namespace result_table_test
}  // namespace orthant
