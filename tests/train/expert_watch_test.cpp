#include "orthant/train/expert_watch.h"

#include <gtest/gtest.h>

#include "models/small_models.h"

namespace orthant {
namespace expert_watch_test {

TEST(ExpertWatch, NamesWhoStarvesAndWhoHogsOnce) {
  ExpertWatch watch;
  const std::vector<LayerLoads> loads = {{"layers.0", {0.25, 0.25, 0.25, 0.25}}, {"layers.3", {0.8, 0.19, 0.01, 0}}};
  std::vector<std::string> found;
  for (int step = 1; step <= 300; ++step) {
    for (const auto& text : watch.step(loads)) found.push_back(std::to_string(step) + " " + text);
  }
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0],
            "100 layers.3: expert 0 hogged for 100 steps: it took 3.2 of an equal share; a larger "
            "model.router_aux_loss_coef spreads tokens");
  EXPECT_TRUE(found[1].starts_with("100 layers.3: expert 2 starved for 100 steps: it took 0.04 of")) << found[1];
  EXPECT_TRUE(found[2].starts_with("100 layers.3: expert 3 starved")) << found[2];
}

TEST(ExpertWatch, AStepBetweenBeginsAnew) {
  ExpertWatch watch;
  for (int step = 1; step <= 250; ++step) {
    const double share = step % 60 == 0 ? 0.5 : 0.01;
    EXPECT_TRUE(watch.step({{"layers.0", {share, 1 - share}}}).empty()) << step;
  }
}

// Of the layers with experts alone, in their order.
TEST(ExpertWatch, SharesAreOfTheirLayer) {
  LlamaConfig config = test::small_mixture();
  config.num_hidden_layers = 3;
  const auto loads = layer_loads(llama_spec(config, test::small_work()), {2, 0, 6, 0, 0, 2, 1, 1, 1, 1, 4, 0});
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_EQ(loads[0].layer, "layers.1");
  EXPECT_EQ(loads[0].shares, (std::vector<double>{0.25, 0, 0.75, 0, 0}));
  EXPECT_EQ(loads[0].dropped, 0.25);
  EXPECT_EQ(loads[1].layer, "layers.2");
  EXPECT_EQ(loads[1].shares, (std::vector<double>{0.125, 0.125, 0.125, 0.125, 0.5}));
  EXPECT_EQ(loads[1].dropped, 0);
}

}  // namespace expert_watch_test
}  // namespace orthant
