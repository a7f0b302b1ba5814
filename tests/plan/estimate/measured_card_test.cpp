// Our runtime on a card: what estimate() says of steps that were measured, and which attention and loss it prices.
//
// The rows: `orthant bench step --device cuda --config bench/llama_1b5.json`, and trimodal_bert.json and
// gpt2_medium.json, on one H200, bfloat16 with a float32 master. Memory is the most that tensors took (state,
// activations, logits, temporaries), so that a plan's reserve is left out.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "orthant/layout/tensor_policy.h"
#include "orthant/models/bert/tower.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/plan/estimate/device_heads.h"
#include "orthant/plan/estimate/plan.h"
#include "orthant/plan/estimate/unit_work.h"
#include "plan/estimate/published_runs.h"

namespace orthant {
namespace measured_card_test {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kSequence = 4096;

// 1.5e9 parameters, heads of 64 channels: bench/llama_1b5.json.
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

// Dropout of 0.1 everywhere: bench/gpt2_medium.json.
Gpt2Config gpt2_medium() {
  return gpt2_preset("gpt2-medium");
}

// The same of two towers: bench/trimodal_bert.json.
TrimodalConfig two_towers() {
  TrimodalConfig config;
  config.primary.vocab_size = 28996;
  config.secondary = config.primary;
  config.tabular = {.input_dim = 3, .hidden_dim = 64};
  config.fusion.hidden_size = 512;
  config.fusion.dropout = 0.1;
  config.pooling = Pooling::cls;
  config.num_labels = 2;
  return config;
}

PlanSettings one_card(std::int64_t rows = kRows, std::int64_t sequence = kSequence) {
  return run_of("dp=1", rows, 1, sequence);
}

Plan priced(const ModelConfig& config, const PlanSettings& settings = one_card()) {
  return estimate(plan_model("model", config), settings, find_hardware("h200-141gb"), find_stack("orthant"));
}

double tensor_bytes(const Plan& plan) {
  return static_cast<double>(plan.memory.front().total() - plan.memory.front().reserve);
}

// Seconds of a step.
void expect_measured(const std::string& name, const Plan& plan, double seconds, double gib) {
  EXPECT_LT(std::abs(tell(name + ", step", seconds, plan.time.step, "s")), 0.15);
  EXPECT_LT(std::abs(tell(name + ", memory", gib, tensor_bytes(plan) / kGiB, "GiB")), 0.02);
}

struct MeasuredRow {
  const char* name;
  double seconds;
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
    expect_measured(fmt::format("Llama 1.5B on an H200, {}", row.name), priced(llama(), settings), row.seconds,
                    row.gib);
  }
}

TEST(MeasuredCard, StepsOfModelsWithDropout) {
  expect_measured("two BERT towers on an H200, 256 x 128", priced(two_towers(), one_card(256, 128)), 0.0944, 18.0);
  expect_measured("two BERT towers on an H200, 32 x 512", priced(two_towers(), one_card(32, 512)), 0.0628, 11.1);
  // No card has timed it with logits that begin at 16-byte borders.
  const Plan gpt2 = priced(gpt2_medium(), one_card(8, 1024));
  EXPECT_LT(std::abs(tell("GPT-2 medium on an H200, memory", 11.9, tensor_bytes(gpt2) / kGiB, "GiB")), 0.02);
}

// A bit for each probability of each layer, from forward to backward; whole scores where no kernel serves the heads.
TEST(MeasuredCard, DroppedProbabilitiesKeepBits) {
  auto dropping = llama();
  dropping.attention_dropout = 0.1;
  const double scores = static_cast<double>(kRows * kSequence * kSequence * llama().num_attention_heads);
  const Plan fused = priced(llama()), dropped = priced(dropping);
  const double bits = scores / 8 * static_cast<double>(llama().num_hidden_layers);
  EXPECT_NEAR(tensor_bytes(dropped), tensor_bytes(fused) + bits, 0.02 * tensor_bytes(fused));
  EXPECT_GT(dropped.time.step, fused.time.step);
  EXPECT_LT(dropped.time.step, 1.7 * fused.time.step);

  dropping.num_attention_heads = 4 * llama().num_attention_heads;  // of 16 channels
  dropping.num_key_value_heads = 4 * llama().num_key_value_heads;
  const Plan whole = priced(dropping);
  EXPECT_GT(tensor_bytes(whole), tensor_bytes(fused) + 2 * 4 * 4 * scores);
  EXPECT_GT(whole.time.step, 10 * dropped.time.step);
}

UnitWork layer_of(const GraphSpec& graph, const PlanSettings& settings) {
  for (auto& unit : program_work(graph, settings)) {
    if (unit.role == UnitRole::layer) return unit;
  }
  return {};
}

TEST(MeasuredCard, AMaskOfKeysTakesOurKernels) {
  const auto settings = one_card();
  const WorkSize work{.rows = kRows, .sequence = kSequence, .compute = DType::bfloat16};
  const auto layer = [&](bool mask) {
    return layer_of(resolved_graph(llama_spec(llama(), work, {.loss = false, .mask = mask}), {}, 1), settings);
  };
  const UnitWork without = layer(false), with = layer(true);
  EXPECT_FALSE(without.drops_attention);
  EXPECT_TRUE(with.drops_attention);
  for (const UnitWork* one : {&without, &with}) {
    EXPECT_TRUE(one->fused_attention);
    EXPECT_EQ(one->head_size, 64);
  }
  EXPECT_DOUBLE_EQ(with.attention_flops, without.attention_flops);
  EXPECT_EQ(with.kept_bytes, without.kept_bytes);  // nothing is dropped
  EXPECT_DOUBLE_EQ(with.moved_bytes, without.moved_bytes);
  EXPECT_LT(with.backward_bytes, 1.01 * without.backward_bytes);
}

// The conditions of nn::device::serves_heads().
TEST(MeasuredCard, HeadsAreMadeByWhatServesThem) {
  DType compute = DType::bfloat16;
  std::int64_t window = 0;
  const auto by = [&](double p, std::int64_t size, bool mask = false) {
    Operation attention{.name = "attention", .in = {0, mask ? 1 : -1}};
    attention.attributes.set("head_size", size);
    attention.attributes.set("p", p);
    attention.attributes.set("window", window);
    return heads_by(attention, 1, {.rows = 1, .sequence = 64, .degree = 1, .compute = compute});
  };
  for (const auto& [tokens, hides] : {std::pair{1, true}, {63, true}, {64, false}, {4096, false}}) {
    window = tokens;
    EXPECT_EQ(by(0, 64), hides ? HeadsBy::formulas : HeadsBy::library) << tokens;
    EXPECT_EQ(by(0.1, 64), hides ? HeadsBy::formulas : HeadsBy::kernels) << tokens;
  }
  window = 0;
  for (const int size : {8, 64, 72, 128}) EXPECT_EQ(by(0, size), HeadsBy::library) << size;
  for (const int size : {4, 60, 129, 136, 256}) EXPECT_EQ(by(0, size), HeadsBy::formulas) << size;
  for (const int size : {32, 64, 128}) {
    EXPECT_EQ(by(0.1, size), HeadsBy::kernels) << size;
    EXPECT_EQ(by(0, size, /*mask=*/true), HeadsBy::kernels) << size;
  }
  for (const int size : {8, 16, 72, 96, 256}) {
    EXPECT_EQ(by(0.1, size), HeadsBy::formulas) << size;
    EXPECT_EQ(by(0, size, /*mask=*/true), HeadsBy::formulas) << size;
  }
  for (const auto& [dtype, narrow] :
       {std::pair{DType::float16, true}, {DType::float32, false}, {DType::float64, false}}) {
    compute = dtype;
    EXPECT_EQ(by(0, 64), narrow ? HeadsBy::library : HeadsBy::formulas) << dtype_name(dtype);
    EXPECT_EQ(by(0.1, 64), narrow ? HeadsBy::kernels : HeadsBy::formulas) << dtype_name(dtype);
  }
}

TEST(MeasuredCard, BitsOfDroppedProbabilitiesAreKeptUnlessTheyAreMadeAgain) {
  EXPECT_EQ(kept_bits(8, 16, 1024), 8 * 16 * 1024 * 1024 / 8);
  EXPECT_EQ(kept_bits(2, 3, 33), 2 * 3 * 33 * 8);  // words of 32 keys
  const WorkSize work{.rows = 8, .sequence = 1024, .compute = DType::bfloat16};
  const PlanSettings settings = one_card(8, 1024);
  const auto layer = [&](double p) {
    auto config = gpt2_medium();
    config.attn_pdrop = p;
    return layer_of(resolved_graph(gpt2_spec(config, work), {}, 1), settings);
  };
  const UnitWork without = layer(0), with = layer(0.1);
  EXPECT_EQ(with.kept_bytes[0] - without.kept_bytes[0], kept_bits(8, 16, 1024));
  EXPECT_EQ(with.kept_bytes[1], without.kept_bytes[1]);
  EXPECT_EQ(with.kept_bytes[2], without.kept_bytes[2]);
  EXPECT_EQ(with.attention_bytes - without.attention_bytes, kept_bits(8, 16, 1024));
}

TEST(MeasuredCard, HeadsAreThoseOfTheModelOnEveryDegreeOfTp) {
  for (const int tp : {1, 2, 4}) {
    const WorkSize work{
        .rows = 2, .sequence = 64, .compute = DType::bfloat16, .tensor = sharing_of(TensorPolicy{}, tp)};
    const auto graph = resolved_graph(llama_spec(llama(), work), {}, tp);
    auto settings = run_of(fmt::format("tp={}", tp), 2, 1, 64);
    const UnitWork layer = layer_of(graph, settings);
    EXPECT_EQ(layer.head_size, 64);
    EXPECT_EQ(layer.attention_flops, 4.0 * 2 * 64 * 64 * 2048 / tp / 2);
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
  const UnitWork loss = program_work(graph, settings).back();
  const double logits = static_cast<double>(kRows * kSequence * config.vocab_size * 2);
  EXPECT_DOUBLE_EQ(loss.moved_bytes, logits);
  EXPECT_DOUBLE_EQ(loss.backward_moved_bytes, 2 * logits);
  for (const auto mode : {PlanRecompute::selective, PlanRecompute::full}) {  // what is made again is not among it
    auto again = settings;
    again.recompute = mode;
    EXPECT_DOUBLE_EQ(layer_of(graph, again).backward_moved_bytes, layer.backward_moved_bytes);
  }
}

// The same with LayerNorm and biases: a bias is written before its product adds to it, which reads it, and summed in
// backward; qkv, out, up and down have 9 times the hidden channels. GELU has 2 and 4 of its inner channels. BERT's
// norms take dropout and residual in front, 4 and 4, and gradients of both ways are summed twice, 3. GPT-2 has one norm
// with the residual's gradient, 2 and 4, one with dropout and residual in front besides, 4 and 5, and a dropout of its
// own, 3 and 2. Without dropout its products add the residuals, 3 with the bias, and gradients of heads are joined, 2
// of qkv.
TEST(MeasuredCard, CountsWhatKernelsOfLayerNormAndDropoutMove) {
  const WorkSize work{.rows = 2, .sequence = 128, .compute = DType::bfloat16};
  const auto layer = [&](const ModelConfig& config) {
    return layer_of(resolved_graph(build_spec(config, work), {}, 1), one_card(2, 128));
  };
  const double tokens = 2 * 128, bert = tokens * 768 * 2, gpt2 = tokens * 1024 * 2;
  const UnitWork encoder = layer(two_towers());
  EXPECT_DOUBLE_EQ(encoder.moved_bytes, (2 * 9 + 2 * 4 + 2 * 4) * bert);
  EXPECT_DOUBLE_EQ(encoder.backward_moved_bytes, (9 + 2 * 4 + 2 * 3 + 4 * 4) * bert);
  EXPECT_DOUBLE_EQ(encoder.forward_drawn, 2 * tokens * 768);  // attention's are in its time
  EXPECT_DOUBLE_EQ(encoder.inputs_drawn, 2 * tokens * 768);
  const UnitWork decoder = layer(gpt2_medium());
  EXPECT_DOUBLE_EQ(decoder.moved_bytes, (2 * 9 + 2 + 4 + 3 + 2 * 4) * gpt2);
  EXPECT_DOUBLE_EQ(decoder.backward_moved_bytes, (9 + 4 + 5 + 2 + 4 * 4) * gpt2);
  EXPECT_DOUBLE_EQ(decoder.forward_drawn, 2 * tokens * 1024);
  EXPECT_DOUBLE_EQ(decoder.inputs_drawn, 2 * tokens * 1024);
  auto undropped = gpt2_medium();
  undropped.embd_pdrop = undropped.attn_pdrop = undropped.resid_pdrop = 0;
  const UnitWork plain = layer(undropped);
  EXPECT_DOUBLE_EQ(plain.moved_bytes, (2 * 7 + 2 * 3 + 2 * 2 + 2 * 4) * gpt2);
  EXPECT_DOUBLE_EQ(plain.backward_moved_bytes, (9 + 2 * 4 + 2 * 3 + 4 * 4) * gpt2);
  EXPECT_EQ(plain.forward_drawn, 0);
}

}  // namespace measured_card_test
}  // namespace orthant
