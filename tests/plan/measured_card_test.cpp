// Our runtime on a card: what estimate() says of steps that were measured, and which attention and loss it prices.
//
// The rows: `orthant bench step --device cuda --config bench/llama_1b5.json` on one H200, bfloat16 with a float32
// master. Memory is the most that tensors took (state, activations, logits, temporaries), so that a plan's reserve is
// left out.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "orthant/layout/tensor_policy.h"
#include "orthant/plan/layer_heads.h"
#include "orthant/plan/plan.h"
#include "orthant/plan/unit_work.h"
#include "orthant/specs/presets.h"
#include "plan/published_runs.h"

namespace orthant {
namespace measured_card_test {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kSequence = 4096;

// 1.5e9 parameters, heads of 64 channels.
LlamaConfig llama() {
  LlamaConfig config;
  config.hidden_size = 2048;
  config.num_hidden_layers = 16;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.intermediate_size = 8192;
  config.vocab_size = 128256;
  config.max_position_embeddings = kSequence;
  return config;
}

PlanSettings one_card() {
  return run_of("dp=1", kRows, 1, kSequence);
}

Plan priced(const ModelConfig& config, const PlanSettings& settings = one_card()) {
  return estimate(plan_model("model", config), settings, find_hardware("h200-141gb"), find_stack("orthant"));
}

double tensor_bytes(const Plan& plan) {
  return static_cast<double>(plan.memory.front().total() - plan.memory.front().reserve);
}

struct MeasuredRow {
  const char* name;
  double seconds;  // of a step
  double gib;
  void (*set)(PlanSettings& settings);
};

constexpr std::array<MeasuredRow, 4> kRowsOfLlama = {{
    {"head and loss one unit", 0.2560, 40.9, [](PlanSettings&) {}},
    {"whole logits", 0.2558, 43.8, [](PlanSettings& settings) { settings.join_head_and_loss = JoinHeadAndLoss::off; }},
    {"a master split in two", 0.2569, 38.2, [](PlanSettings& settings) { settings.splits_master = true; }},
    {"sums in one order", 0.2776, 40.9, [](PlanSettings& settings) { settings.deterministic = true; }},
}};

TEST(MeasuredCard, StepsOfLlama) {
  for (const MeasuredRow& row : kRowsOfLlama) {
    PlanSettings settings = one_card();
    row.set(settings);
    const Plan plan = priced(llama(), settings);
    const std::string name = fmt::format("Llama 1.5B on an H200, {}", row.name);
    EXPECT_LT(std::abs(tell(name + ", step", row.seconds, plan.time.step, "s")), 0.15);
    EXPECT_LT(std::abs(tell(name + ", memory", row.gib, tensor_bytes(plan) / kGiB, "GiB")), 0.02);
  }
}

TEST(MeasuredCard, DroppedProbabilitiesMakeWholeScores) {
  auto dropping = llama();
  dropping.attention_dropout = 0.1;
  const double scores = static_cast<double>(kRows * kSequence * kSequence * llama().num_attention_heads);
  const Plan fused = priced(llama()), whole = priced(dropping);
  EXPECT_GT(tensor_bytes(whole), tensor_bytes(fused) + 2 * 4 * scores);
  EXPECT_GT(whole.time.step, 4 * fused.time.step);
}

UnitWork layer_of(const GraphSpec& graph, const PlanSettings& settings) {
  for (auto& unit : spec_work(graph, settings)) {
    if (unit.role == UnitRole::layer) return unit;
  }
  return {};
}

TEST(MeasuredCard, AMaskOfKeysMakesWholeScores) {
  const auto settings = run_of("dp=1", kRows, 1, kSequence);
  const WorkSize work{.rows = kRows, .sequence = kSequence, .compute = DType::bfloat16};
  const auto layer = [&](bool mask) {
    return layer_of(resolved_graph(llama_spec(llama(), work, {.loss = false, .mask = mask}), {}, 1), settings);
  };
  const UnitWork fused = layer(false), whole = layer(true);
  EXPECT_TRUE(fused.fused_attention);
  EXPECT_EQ(fused.head_size, 64);
  EXPECT_FALSE(whole.fused_attention);
  EXPECT_DOUBLE_EQ(whole.attention_flops, 2 * fused.attention_flops);  // nothing is left out under a causal mask
  EXPECT_GT(whole.moved_bytes, 10 * fused.moved_bytes);
  EXPECT_GT(whole.backward_bytes, 5 * fused.backward_bytes);
}

// The conditions of nn::device::serves_heads().
TEST(MeasuredCard, FusedAttentionServesWhatTheDeviceServes) {
  const WorkSize work{.rows = 1, .sequence = 16, .compute = DType::bfloat16};
  const auto serves = [&](PlanSettings settings, double size, bool mask = false) {
    const auto graph = llama_spec(llama_preset("llama-tiny"), work, {.loss = false, .mask = mask});
    return fuses_heads(graph, graph.unit("layers.0"), {.number = 4, .size = size}, settings);
  };
  PlanSettings settings;
  for (const double size : {8, 64, 72, 128}) EXPECT_TRUE(serves(settings, size)) << size;
  for (const double size : {4, 60, 129, 136, 256}) EXPECT_FALSE(serves(settings, size)) << size;
  EXPECT_FALSE(serves(settings, 64, /*mask=*/true));
  for (const auto& [dtype, served] :
       {std::pair{DType::float16, true}, {DType::float32, false}, {DType::float64, false}}) {
    settings.compute = dtype;
    EXPECT_EQ(serves(settings, 64), served) << dtype_name(dtype);
  }
  settings.compute = DType::bfloat16;
  settings.drops.sums = true;
  EXPECT_TRUE(serves(settings, 64));
  settings.drops.scores = true;
  EXPECT_FALSE(serves(settings, 64));
}

TEST(MeasuredCard, HeadsAreThoseOfTheModelOnEveryDegreeOfTp) {
  for (const int tp : {1, 2, 4}) {
    const WorkSize work{
        .rows = 2, .sequence = 64, .compute = DType::bfloat16, .tensor = sharing_of(TensorPolicy{}, tp)};
    const auto graph = resolved_graph(llama_spec(llama(), work), {}, tp);
    const auto heads = layer_heads(graph.unit("layers.0"), 2 * 64, 2048.0 / tp, DType::bfloat16);
    EXPECT_EQ(heads.number, 32.0 / tp);
    EXPECT_EQ(heads.size, 64);
  }
}

// Bytes that kernels read and write per layer, in those of [tokens, hidden]: norms 2 and, with the residual's gradient,
// 4 each; the residual sums' copies 3 each; rotation 2 of queries and keys; joining 2 of queries, keys and values;
// SwiGLU 3 and 6 of its inner channels. Of logits 1 and 2.
TEST(MeasuredCard, CountsWhatKernelsMove) {
  auto config = llama();
  const WorkSize work{.rows = kRows, .sequence = kSequence, .compute = DType::bfloat16};
  const auto graph = resolved_graph(llama_spec(config, work), {}, 1);
  const auto settings = run_of("dp=1", kRows, 1, kSequence);
  const UnitWork layer = layer_of(graph, settings);
  const double hidden = static_cast<double>(kRows * kSequence * config.hidden_size * 2);
  EXPECT_DOUBLE_EQ(layer.moved_bytes, (2 * 2 + 2 * 3 + 2 * 1.25 + 3 * 4) * hidden);
  EXPECT_DOUBLE_EQ(layer.backward_moved_bytes, (2 * 4 + 2 * 1.5 + 6 * 4) * hidden);
  const UnitWork loss = spec_work(graph, settings).back();
  const double logits = static_cast<double>(kRows * kSequence * config.vocab_size * 2);
  EXPECT_DOUBLE_EQ(loss.moved_bytes, logits);
  EXPECT_DOUBLE_EQ(loss.backward_moved_bytes, 2 * logits);
  for (const auto mode : {PlanRecompute::selective, PlanRecompute::full}) {  // what is made again is not among it
    auto again = settings;
    again.recompute = mode;
    EXPECT_DOUBLE_EQ(layer_of(graph, again).backward_moved_bytes, layer.backward_moved_bytes);
  }
}

}  // namespace measured_card_test
}  // namespace orthant
