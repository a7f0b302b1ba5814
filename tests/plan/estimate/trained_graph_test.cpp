// Head and loss as one unit, as the planner prices it: where they are one, what that takes, and how often schedules
// make the logits.
#include "orthant/schedule/trained_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "orthant/plan/estimate/plan.h"
#include "orthant/plan/estimate/rank_step.h"
#include "orthant/plan/estimate/unit_time.h"
#include "orthant/plan/estimate/unit_work.h"
#include "plan/estimate/published_runs.h"

namespace orthant {
namespace trained_graph_test {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kSequence = 512;

PlanSettings settings_of(const std::string& mesh, std::int64_t microbatches = 1) {
  return run_of(mesh, kRows, microbatches, kSequence);
}

GraphSpec graph_of(const PlanSettings& settings, const ModelConfig& config = gpt2_preset("gpt2")) {
  const WorkSize work{.rows = kRows,
                      .sequence = kSequence,
                      .compute = settings.compute,
                      .tensor = sharing_of(settings.tensor, settings.mesh.degree(Axis::tp))};
  return trained_graph(build_spec(config, work), settings);
}

UnitWork head_of(const PlanSettings& settings, const ModelConfig& config = gpt2_preset("gpt2")) {
  for (auto& unit : program_work(graph_of(settings, config), settings)) {
    if (unit.name == "head") return unit;
  }
  return {};
}

Plan priced(const PlanSettings& settings, const char* model = "gpt2") {
  return estimate(find_plan_model(model), settings, find_hardware("h100-80gb"), find_stack("orthant"));
}

bool has_loss(const GraphSpec& graph) {
  return std::ranges::any_of(graph.units, [](const UnitSpec& unit) { return unit.name == "loss"; });
}

TEST(TrainedGraph, JoinsWhereSettingsSaySo) {
  PlanSettings settings = settings_of("dp=1");
  const auto joined = [&](bool on_host, JoinHeadAndLoss join) {
    settings.on_host = on_host;
    settings.join_head_and_loss = join;
    return !has_loss(graph_of(settings));
  };
  EXPECT_TRUE(joined(/*on_host=*/false, JoinHeadAndLoss::automatic));
  EXPECT_FALSE(joined(/*on_host=*/true, JoinHeadAndLoss::automatic));
  EXPECT_FALSE(joined(/*on_host=*/false, JoinHeadAndLoss::off));
  EXPECT_TRUE(joined(/*on_host=*/true, JoinHeadAndLoss::on));
}

TEST(TrainedGraph, ACutBetweenHeadAndLossLeavesThemApart) {
  PlanSettings settings = settings_of("pp=2", 4);
  settings.stages.split = {{"embed", "layers.0", "layers.1", "head"}, {"loss"}};
  const auto config = llama_preset("llama-tiny");
  EXPECT_TRUE(has_loss(graph_of(settings, config)));
  settings.stages.split = {{"embed", "layers.0"}, {"layers.1", "head", "loss"}};
  EXPECT_FALSE(has_loss(graph_of(settings, config)));
}

TEST(TrainedGraph, FewerRowsOfLogitsTakeLessMemoryAndLonger) {
  PlanSettings settings = settings_of("dp=1");
  const Plan usual = priced(settings, "llama3-8b");
  settings.loss_chunk_rows = 256;
  const Plan chunks = priced(settings, "llama3-8b");
  settings.loss_chunk_rows = 0;
  settings.join_head_and_loss = JoinHeadAndLoss::off;
  const Plan whole = priced(settings, "llama3-8b");
  EXPECT_LT(chunks.peak_bytes(), usual.peak_bytes());
  EXPECT_GT(chunks.time.step, usual.time.step);
  EXPECT_EQ(usual.stages.front().back(), "head");
  EXPECT_EQ(whole.stages.front().back(), "loss");
}

TEST(TrainedGraph, ItsWordsSayWhatIsNotUsual) {
  PlanSettings settings = settings_of("dp=1");
  const std::string usual = train_words(settings);
  for (const char* key : {"join_head_and_loss", "loss_chunk_rows", "deterministic"}) {
    EXPECT_EQ(usual.find(key), std::string::npos) << usual;
  }
  settings.join_head_and_loss = JoinHeadAndLoss::on;
  settings.loss_chunk_rows = 512;
  settings.deterministic = true;
  EXPECT_NE(train_words(settings).find("--set train.join_head_and_loss=on --set train.loss_chunk_rows=512 --set "
                                       "train.deterministic=true"),
            std::string::npos)
      << train_words(settings);
}

// Per logit 1 element forward and 2 backward; the norm 2 and 3, and 2 to put the chunks' gradients of x together.
TEST(TrainedGraph, CountsWhatKernelsMove) {
  PlanSettings settings = settings_of("dp=1");
  settings.loss_chunk_rows = 300;
  const auto config = llama_preset("llama-tiny");
  const UnitWork head = head_of(settings, config);
  const double tokens = kRows * kSequence, element = 2;
  const double logits = tokens * static_cast<double>(config.vocab_size) * element;
  const double hidden = tokens * static_cast<double>(config.hidden_size) * element;
  EXPECT_EQ(head.chunks, 7);
  EXPECT_DOUBLE_EQ(head.moved_bytes, logits + 2 * hidden);
  EXPECT_DOUBLE_EQ(head.backward_moved_bytes, 2 * logits + 5 * hidden);
}

// Forward and backward of a microbatch have no float32 copy of a chunk's logits.
TEST(TrainedGraph, AChunkIsTheLargestThingBesides) {
  PlanSettings settings = settings_of("dp=1");
  const double classes = static_cast<double>(gpt2_preset("gpt2").vocab_size);
  const auto besides = [&](std::int64_t rows) {
    settings.loss_chunk_rows = rows;
    return head_of(settings).in_forward->forward;
  };
  EXPECT_NEAR((besides(1024) - besides(512)) / (512 * classes * 2), 1, 0.05);
}

TEST(TrainedGraph, SchedulesMakeLogitsAgain) {
  EXPECT_EQ(logits_made("zbh1", 1, 8), 1);
  EXPECT_EQ(logits_made("1f1b", 4, 8), 1);
  EXPECT_EQ(logits_made("interleaved", 4, 8), 1);
  EXPECT_EQ(logits_made("gpipe", 4, 1), 1);
  EXPECT_EQ(logits_made("gpipe", 4, 8), 2);
  EXPECT_EQ(logits_made("zbh1", 4, 8), 3);
  EXPECT_EQ(logits_made("zbv", 4, 1), 3);

  const Hardware hardware = find_hardware("h100-80gb");
  const auto seconds = [&](const std::string& schedule) {
    PlanSettings settings = settings_of("pp=2", 4);
    settings.stages.schedule = schedule;
    settings.loss_chunk_rows = 512;
    return unit_seconds(head_of(settings), settings, {}, hardware);
  };
  const UnitWork head = head_of(settings_of("pp=2", 4));
  const auto [tokens, classes, hidden, float8] = head.products.back();
  EXPECT_FALSE(float8);
  const double product = 4 * product_seconds({tokens / 4, classes, hidden}, hardware, 2);
  const double gradient = hardware.moving_seconds(2 * tokens * classes * 2);
  const UnitSeconds once = seconds("1f1b"), twice = seconds("gpipe"), thrice = seconds("zbh1");
  EXPECT_NEAR(twice.inputs - once.inputs, product, 1e-6 * product);
  EXPECT_DOUBLE_EQ(twice.weights, once.weights);
  EXPECT_DOUBLE_EQ(thrice.inputs, twice.inputs);
  EXPECT_NEAR(thrice.weights - once.weights, product + gradient, 0.02 * product);
  EXPECT_DOUBLE_EQ(thrice.forward, once.forward);
}

// Each rank has the classes of its part, whatever loss_parallel says, and three sums over tp per chunk.
TEST(TrainedGraph, TensorRanksHaveTheirClasses) {
  PlanSettings settings = settings_of("tp=4");
  const auto config = llama_preset("llama3-8b");
  settings.loss_chunk_rows = 600;
  const UnitWork head = head_of(settings, config);
  EXPECT_EQ(head.chunks, 4);
  EXPECT_EQ(head.products.back().n, 128256 / 4);
  EXPECT_EQ(head.forward_exchanges.size(), 3U * 4);
  settings.tensor.loss_parallel = true;
  EXPECT_EQ(priced(settings, "llama3-8b").peak_bytes(), [&] {
    settings.tensor.loss_parallel = false;
    return priced(settings, "llama3-8b").peak_bytes();
  }());
}

// A tied head alone in its stage.
TEST(TrainedGraph, AHeadMayBeAStage) {
  PlanSettings settings = settings_of("pp=3", 6);
  settings.split = "6,6,0";
  for (const char* schedule : {"1f1b", "gpipe", "zbh1"}) {
    settings.stages.schedule = schedule;
    const Plan plan = priced(settings);
    EXPECT_EQ(plan.stages.back(), std::vector<std::string>{"head"}) << schedule;
    EXPECT_GT(plan.costs.back().weights, 0) << schedule;
    EXPECT_GT(plan.traffic.back().tied.bytes, 0) << schedule;
    EXPECT_GT(plan.memory.back().temporary, 0) << schedule;
  }
}

TEST(TrainedGraph, OtherStacksKnowNothingOfIt) {
  const auto refused = [](void (*set)(PlanSettings& settings)) {
    PlanSettings settings = settings_of("dp=1");
    set(settings);
    return error_text<ConfigError>(
        [&] { estimate(find_plan_model("gpt2"), settings, find_hardware("h100-80gb"), find_stack("megatron")); });
  };
  EXPECT_EQ(refused([](PlanSettings& settings) { settings.join_head_and_loss = JoinHeadAndLoss::on; }),
            "--join-head-and-loss: the closed forms of --stack megatron do not know it\n"
            "  fix: leave it out, or use --stack orthant");
  EXPECT_NE(refused([](PlanSettings& settings) { settings.loss_chunk_rows = 8; }).find("--loss-chunk-rows"),
            std::string::npos);
  EXPECT_NE(refused([](PlanSettings& settings) { settings.deterministic = true; }).find("--deterministic"),
            std::string::npos);
  EXPECT_NE(refused([](PlanSettings& settings) { settings.splits_master = true; }).find("--master"), std::string::npos);
}

}  // namespace trained_graph_test
}  // namespace orthant
