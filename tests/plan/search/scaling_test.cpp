#include "orthant/plan/search/scaling.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "orthant/base/error.h"

namespace orthant {
namespace scaling_test {

SearchRequest llama_8b(int cards, std::int64_t global_batch) {
  SearchRequest request;
  request.model = find_plan_model("llama3-8b");
  request.hardware = find_hardware("h100-80gb");
  request.cards = cards;
  request.global_batch = global_batch;
  request.sequence = 4096;
  return request;
}

TEST(Scaling, WeakKeepsTheBatchPerCard) {
  const std::array<int, 4> cards = {32, 8, 16, 8};
  const ScalingCurve curve = scaling_curve(llama_8b(8, 64), cards, ScalingKind::weak);
  ASSERT_EQ(curve.points.size(), 3U);
  for (const ScalingPoint& point : curve.points) {
    ASSERT_TRUE(point.plan.has_value()) << point.why_not;
    EXPECT_EQ(point.global_batch, 8 * point.cards);
    EXPECT_EQ(point.plan->settings.mesh.world_size(), point.cards);
    EXPECT_DOUBLE_EQ(point.tokens_per_second, point.plan->tokens_per_second_per_gpu * point.cards);
    EXPECT_LE(point.plan->peak_bytes(), find_hardware("h100-80gb").memory_bytes);
  }
  EXPECT_EQ(curve.points[0].cards, 8);
  EXPECT_DOUBLE_EQ(curve.points[0].efficiency, 1);
  EXPECT_GT(curve.points[2].efficiency, 0.5);
}

TEST(Scaling, StrongRunsOutOfRows) {
  const std::array<int, 3> cards = {8, 512, 2048};
  const ScalingCurve curve = scaling_curve(llama_8b(8, 512), cards, ScalingKind::strong);
  double last = 0;
  for (const ScalingPoint& point : curve.points) {
    ASSERT_TRUE(point.plan.has_value()) << point.why_not;
    EXPECT_EQ(point.global_batch, 512);
    EXPECT_GT(point.tokens_per_second, last) << point.cards;
    last = point.tokens_per_second;
  }
  EXPECT_LT(curve.points.back().efficiency, 0.9);  // a row for every four cards
}

TEST(Scaling, EfficiencyIsThatOfTheSmallestCountThatFits) {
  SearchRequest request = llama_8b(16, 64);
  request.model = find_plan_model("llama3-70b");
  const std::array<int, 3> cards = {1, 16, 32};
  const ScalingCurve curve = scaling_curve(request, cards, ScalingKind::strong);
  EXPECT_FALSE(curve.points[0].plan.has_value());
  EXPECT_FALSE(curve.points[0].why_not.empty());
  EXPECT_EQ(curve.points[0].efficiency, 0);
  EXPECT_DOUBLE_EQ(curve.points[1].efficiency, 1);
  EXPECT_GT(curve.points[2].efficiency, 0);
}

TEST(Scaling, RefusesCountsThatCannotBe) {
  const auto refused = [](const SearchRequest& request, std::vector<int> cards, ScalingKind kind) {
    return error_text<ConfigError>([&] { scaling_curve(request, cards, kind); });
  };
  EXPECT_EQ(refused(llama_8b(8, 64), {}, ScalingKind::weak),
            "--scaling names no number of cards\n  fix: list numbers from 1 up, as in --scaling 8,16,32");
  EXPECT_EQ(refused(llama_8b(8, 64), {8, 0}, ScalingKind::weak),
            "--scaling: 0 cards\n  fix: list numbers from 1 up, as in --scaling 8,16,32");
  EXPECT_EQ(refused(llama_8b(16, 24), {16, 3}, ScalingKind::weak),
            "weak scaling from 16 cards with a global batch of 24 gives 3 cards no whole number of rows\n"
            "  fix: set a global batch that the number of cards divides, or scale strongly");
  EXPECT_EQ(error_text<ConfigError>([] { parse_scaling("week"); }),
            "unknown scaling \"week\"\n  fix: did you mean \"weak\"? (one of weak, strong)");
}

TEST(Scaling, TextAndJsonHoldThePoints) {
  SearchRequest request = llama_8b(8, 64);
  const std::array<int, 2> cards = {1, 8};
  const ScalingCurve curve = scaling_curve(request, cards, ScalingKind::weak);
  const std::string text = scaling_text(curve, request);
  EXPECT_TRUE(text.starts_with("weak scaling of llama3-8b on h100-80gb, sequences of 4096\ncards")) << text;
  EXPECT_NE(text.find("\n1 card: "), std::string::npos) << text;
  const auto json = nlohmann::json::parse(to_json(curve));
  EXPECT_EQ(json["scaling"], "weak");
  EXPECT_EQ(json["points"][0]["fits"], false);
  EXPECT_EQ(json["points"][1]["fits"], true);
  EXPECT_EQ(json["points"][1]["efficiency"], 1.0);
  EXPECT_EQ(json["points"][1]["mesh"], curve.points[1].plan->settings.mesh.to_string());
}

}  // namespace scaling_test
}  // namespace orthant
