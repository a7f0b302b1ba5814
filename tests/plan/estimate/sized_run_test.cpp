// Runs of units over sizes: what they keep and defer is what specs state, and their worst moments follow settings. That
// the moments are those of the runtime is shown in tests/train/unit_moments_test.cpp.
#include "orthant/plan/estimate/sized_run.h"

#include <gtest/gtest.h>

#include "orthant/layout/tensor_policy.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace sized_run_test {

BertModelConfig masked_words() {
  BertModelConfig config;
  config.encoder = bert_preset("bert-tiny");
  return config;
}

const std::vector<ModelConfig> kModels = {llama_preset("llama-tiny"),
                                          llama_preset("qwen3-tiny"),
                                          llama_preset("mistral-tiny"),
                                          gpt2_preset("gpt2-tiny"),
                                          masked_words(),
                                          encoder_lm_preset("encoder-lm-tiny"),
                                          trimodal_preset("trimodal-tiny")};

GraphSpec resolved(const ModelConfig& config, const TensorPolicy& policy, int tp, DType compute = DType::float32,
                   std::int64_t sequence = 16) {
  const WorkSize work{.rows = 4, .sequence = sequence, .compute = compute, .tensor = sharing_of(policy, tp)};
  return resolved_graph(build_spec(config, work), policy, tp);
}

PlanSettings settings_of(Recompute mode, bool on_host = true, DType compute = DType::float32) {
  PlanSettings settings;
  settings.recompute = static_cast<PlanRecompute>(mode);
  settings.on_host = on_host;
  settings.compute = compute;
  return settings;
}

const UnitSpec& first_layer(const GraphSpec& graph) {
  return *std::ranges::find_if(graph.units, &UnitSpec::recomputable);
}

TEST(UnitRun, KeepsAndDefersWhatSpecsState) {
  const std::vector<std::pair<int, TensorPolicy>> policies = {
      {1, {}}, {2, {}}, {2, {.sequence_parallel = true}}, {2, {.sequence_parallel = true, .regather = true}}};
  for (const auto& config : kModels) {
    for (const auto& [tp, policy] : policies) {
      const auto graph = resolved(config, policy, tp);
      for (const auto& unit : graph.units) {
        for (const auto mode : kRecomputeModes) {
          const auto run = run_sized(graph, unit, settings_of(mode));
          if (unit.is_loss || run.forward == 0) continue;
          const auto stated = unit.cost.kept_bytes[static_cast<std::size_t>(mode)];
          EXPECT_EQ(run.kept, stated) << graph.name << ' ' << unit.name << " tp " << tp << ' ' << recompute_name(mode);
          EXPECT_EQ(run.deferred, unit.cost.deferred_bytes) << graph.name << ' ' << unit.name << " tp " << tp;
        }
      }
    }
  }
}

TEST(UnitRun, OperationsByNameAreMadeAgainAsAModeMakesThem) {
  for (const auto& config : kModels) {
    const auto graph = resolved(config, {}, 1);
    PlanSettings named = settings_of(Recompute::none);
    named.remade = {"attention"};
    const auto run = run_sized(graph, first_layer(graph), named);
    const auto selective = run_sized(graph, first_layer(graph), settings_of(Recompute::selective));
    EXPECT_EQ(run.kept, selective.kept);
    EXPECT_EQ(run.forward, selective.forward);
    EXPECT_EQ(run.backward, selective.backward);
    named.remade.insert(named.remade.end(), {"rms_norm", "layer_norm"});
    EXPECT_LT(run_sized(graph, first_layer(graph), named).kept, selective.kept);
  }
}

TEST(UnitRun, RecomputingMovesMemoryFromForwardToBackward) {
  for (const auto& config : kModels) {
    const auto graph = resolved(config, {}, 1);
    const auto& layer = first_layer(graph);
    const auto none = run_sized(graph, layer, settings_of(Recompute::none));
    const auto full = run_sized(graph, layer, settings_of(Recompute::full));
    EXPECT_LT(full.forward, none.forward) << graph.name;
    EXPECT_GE(full.backward, none.backward) << graph.name;
    EXPECT_GT(none.backward, none.kept) << graph.name;
  }
}

// The heads' kernels of a host keep no scores; on a device they are whole for a while where no fused kernel serves.
TEST(UnitRun, ADeviceHasWholeScoresWhereNoKernelServes) {
  auto config = llama_preset("llama-tiny");
  const auto growth = [&](bool on_host, DType compute, bool drops) {
    config.attention_dropout = drops ? 0.1 : 0;
    const auto moment = [&](std::int64_t sequence) {
      const auto graph = resolved(config, {}, 1, compute, sequence);
      return run_sized(graph, first_layer(graph), settings_of(Recompute::none, on_host, compute)).backward;
    };
    return moment(256) / moment(128);
  };
  for (const bool drops : {true, false}) EXPECT_LT(growth(/*on_host=*/true, DType::bfloat16, drops), 2.1);
  EXPECT_DOUBLE_EQ(growth(/*on_host=*/false, DType::bfloat16, /*drops=*/false), 2);
  EXPECT_GT(growth(/*on_host=*/false, DType::bfloat16, /*drops=*/true), 2.5) << "heads of 16 channels";
  EXPECT_GT(growth(/*on_host=*/false, DType::float32, /*drops=*/false), 2.5);
  config.sliding_window = 64;
  EXPECT_GT(growth(/*on_host=*/false, DType::bfloat16, /*drops=*/false), 2.5) << "a sliding window";
  EXPECT_LT(growth(/*on_host=*/true, DType::bfloat16, /*drops=*/false), 2.1) << "a sliding window";
  config.sliding_window = 256;
  EXPECT_DOUBLE_EQ(growth(/*on_host=*/false, DType::bfloat16, /*drops=*/false), 2) << "a window that hides nothing";
  config.sliding_window = 0;
  config.num_attention_heads = config.num_key_value_heads = config.hidden_size / 32;
  config.head_dim = 32;
  EXPECT_LT(growth(/*on_host=*/false, DType::bfloat16, /*drops=*/true), 2.1) << "heads of 32 channels";
}

// Of a layer whose heads have 32 channels: what a host keeps, and a bit for each probability that may be dropped. B
// leaves no bits to W.
TEST(UnitRun, ADeviceKeepsBitsOfDroppedProbabilities) {
  auto gpt2 = gpt2_preset("gpt2-tiny");
  gpt2.num_attention_heads = gpt2.hidden_size / 32;
  auto bert = masked_words();
  bert.encoder.num_attention_heads = bert.encoder.hidden_size / 32;
  for (const ModelConfig& config : std::vector<ModelConfig>{gpt2, bert}) {
    const auto graph = resolved(config, {}, 1, DType::bfloat16, 64);
    const auto& layer = first_layer(graph);
    for (const auto mode : kRecomputeModes) {
      const auto run = run_sized(graph, layer, settings_of(mode, /*on_host=*/false, DType::bfloat16));
      const double bits =
          mode == Recompute::none ? 4.0 * 64 * 64 / 8 * static_cast<double>(gpt2.num_attention_heads) : 0;
      EXPECT_EQ(run.kept, static_cast<double>(layer.cost.kept_bytes[static_cast<std::size_t>(mode)]) + bits)
          << graph.name << ' ' << recompute_name(mode);
      EXPECT_EQ(run.deferred, layer.cost.deferred_bytes) << graph.name << ' ' << recompute_name(mode);
    }
  }
}

// By ATen's formulas, which a device takes for float64, drawing is passes over memory. Kernels draw once for a gradient
// and the activation that they make again.
TEST(UnitRun, ADevicesKernelsDrawWhereTheyDrop) {
  const auto config = encoder_lm_preset("encoder-lm-tiny");
  const auto run = [&](DType compute) {
    const auto graph = resolved(config, {}, 1, compute);
    return run_sized(graph, first_layer(graph), settings_of(Recompute::none, /*on_host=*/false, compute));
  };
  const double hidden = 64.0 * static_cast<double>(config.hidden_size);
  const double inner = 64.0 * static_cast<double>(config.intermediate_size);
  const auto kernels = run(DType::bfloat16), formulas = run(DType::float64);
  EXPECT_DOUBLE_EQ(kernels.forward_drawn, 2 * hidden + inner);
  EXPECT_DOUBLE_EQ(kernels.inputs_drawn, 2 * hidden + inner);
  EXPECT_DOUBLE_EQ(kernels.weights_drawn, inner);
  EXPECT_EQ(formulas.forward_drawn, 0);
  EXPECT_GT(formulas.forward_moved, 1000 * (2 * hidden + inner));
  EXPECT_LT(kernels.backward, formulas.backward / 4);
}

// FlashAttention's backward with sums in one order: parts of the keys are summed apart, two with these rows and heads,
// and shared keys and values head by head.
TEST(UnitRun, SumsInOneOrderTakeMemory) {
  LlamaConfig config;
  config.num_hidden_layers = 1;
  config.hidden_size = 128;
  config.head_dim = 64;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 4;
  config.intermediate_size = 64;
  const auto moment = [&](bool deterministic) {
    const auto graph = resolved(config, {}, 1, DType::bfloat16, 64);
    auto settings = settings_of(Recompute::none, /*on_host=*/false, DType::bfloat16);
    settings.deterministic = deterministic;
    return run_sized(graph, first_layer(graph), settings).backward;
  };
  const double channels = 4.0 * 64 * 1024;
  EXPECT_DOUBLE_EQ(moment(true) - moment(false), channels * (2 * 4 + 2 * 2));
}

TEST(UnitRun, TensorParallelismCutsTheMoments) {
  for (const auto& config : kModels) {
    const auto whole = resolved(config, {}, 1);
    const auto cut = resolved(config, {.sequence_parallel = true}, 2);
    const auto one = run_sized(whole, first_layer(whole), settings_of(Recompute::none));
    const auto two = run_sized(cut, first_layer(cut), settings_of(Recompute::none));
    EXPECT_LT(two.backward, 0.75 * one.backward) << whole.name;
    EXPECT_GT(two.backward, 0.45 * one.backward) << whole.name;
  }
}

// 4 rows of 16 positions. Nothing is kept of what was drawn: backward draws it again, and so does what makes a forward
// again. A host draws no score that a mask hides.
TEST(UnitRun, CountsTheFactorsOfDropout) {
  const double scores = 4 * 16 * 16;  // per head
  struct Row {
    ModelConfig config;
    double sums, heads, inner;  // of a layer: residual sums, scores, what is dropped between the linears of its MLP
  };
  auto llama = llama_preset("llama-tiny");
  llama.attention_dropout = 0.1;
  const auto bert = bert_preset("bert-tiny");
  const auto gpt2 = gpt2_preset("gpt2-tiny");
  auto sums_alone = gpt2, scores_alone = gpt2;
  sums_alone.attn_pdrop = 0;
  scores_alone.resid_pdrop = 0;
  const auto encoder = encoder_lm_preset("encoder-lm-tiny");
  const auto product = [](std::int64_t a, std::int64_t b) { return static_cast<double>(a * b); };
  const double gpt2_sums = 2 * product(64, gpt2.hidden_size);
  const double gpt2_scores = scores / 2 * static_cast<double>(gpt2.num_attention_heads);
  const std::vector<Row> rows = {
      {llama_preset("llama-tiny"), 0, 0, 0},
      {llama, 0, scores / 2 * static_cast<double>(llama.num_attention_heads), 0},
      {masked_words(), 2 * product(64, bert.hidden_size), scores * static_cast<double>(bert.num_attention_heads), 0},
      {gpt2, gpt2_sums, gpt2_scores, 0},
      {sums_alone, gpt2_sums, 0, 0},
      {scores_alone, 0, gpt2_scores, 0},
      {encoder, 2 * product(64, encoder.hidden_size), scores / 2 * static_cast<double>(encoder.num_attention_heads),
       product(64, encoder.intermediate_size)},
  };
  for (const auto& row : rows) {
    const auto graph = resolved(row.config, {}, 1);
    const auto& layer = first_layer(graph);
    const double forward = row.sums + row.heads + row.inner;
    const auto run = [&](Recompute mode) { return run_sized(graph, layer, settings_of(mode)); };
    const auto none = run(Recompute::none);
    EXPECT_DOUBLE_EQ(none.forward_drawn, forward) << graph.name;
    EXPECT_DOUBLE_EQ(none.inputs_drawn, forward) << graph.name;
    EXPECT_DOUBLE_EQ(none.weights_drawn, row.inner) << graph.name;
    EXPECT_DOUBLE_EQ(run(Recompute::selective).inputs_drawn, forward + row.heads) << graph.name;
    const auto full = run(Recompute::full);
    EXPECT_DOUBLE_EQ(full.forward_drawn, forward) << graph.name;
    // The sum that ends a layer without a norm behind it is not made again.
    const double last = graph.name == "gpt2" ? row.sums / 2 : 0;
    EXPECT_DOUBLE_EQ(full.inputs_drawn, 2 * forward - last) << graph.name;
  }
}

TEST(UnitRun, UnitsOfAUserHaveNoSizes) {
  GraphSpec graph;
  graph.name = "own";
  graph.values = {{.name = "y", .shape = {4, 8}}};
  graph.units = {{.name = "own", .kind = "module", .inputs = {}, .outputs = {"y"}}};
  EXPECT_EQ(run_sized(graph, graph.units.front(), settings_of(Recompute::none)).forward, 0);
}

}  // namespace sized_run_test
}  // namespace orthant
