#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/plan/estimate/unit_work.h"
#include "plan/estimate/published_runs.h"

namespace orthant {
namespace formula_work_test {

struct Mode {
  bool sequence_parallel = false;
  PlanRecompute recompute = PlanRecompute::none;
};

UnitWork layer_of(const PlanModel& model, const std::string& stack, const PlanSettings& settings) {
  return formula_work(*model.shape, find_stack(stack), settings).at(1);
}

double kept(const UnitWork& work, PlanRecompute recompute) {
  return work.kept_bytes.at(static_cast<std::size_t>(recompute));
}

PlanSettings unfused(const std::string& mesh, std::int64_t micro_batch, std::int64_t sequence, Mode mode = {}) {
  PlanSettings settings = run_of(mesh, micro_batch, 1, sequence);
  settings.flash = false;
  settings.tensor.sequence_parallel = mode.sequence_parallel;
  settings.recompute = mode.recompute;
  return settings;
}

// Korthikanti 2022, table 2 and figure 1: activations of the first stage, layers alone, GiB. Interleaving keeps
// 1 + (p - 1) / (p v) as much.
TEST(FormulaWork, ActivationsAreKorthikantis) {
  struct Row {
    const char* model;
    std::int64_t micro_batch;
    double pp, virtual_stages;
    std::array<double, 4> published;  // tp; with sequence parallelism; with selective recompute besides; full recompute
  };
  const std::array<Mode, 4> modes = {Mode{}, Mode{true}, Mode{true, PlanRecompute::selective},
                                     Mode{false, PlanRecompute::full}};
  for (const Row& row :
       {Row{"gpt-22b", 4, 1, 1, {59.25, 39.56, 9.56, 4.50}}, Row{"gpt3-175b", 1, 8, 3, {66.84, 41.41, 12.35, 5.81}},
        Row{"gpt-1t", 1, 64, 1, {131.25, 76.56, 26.56, 12.50}}}) {
    const PlanModel model = find_plan_model(row.model);
    for (std::size_t i = 0; i < modes.size(); ++i) {
      const UnitWork layer = layer_of(model, "megatron", unfused("tp=8", row.micro_batch, 2048, modes[i]));
      const double in_flight = row.virtual_stages == 1 ? 1 : 1 + (row.pp - 1) / (row.pp * row.virtual_stages);
      const double bytes = kept(layer, modes[i].recompute) * static_cast<double>(model.shape->layers) * in_flight;
      EXPECT_NEAR(bytes / kGiB, row.published[i], 0.005001) << row.model << " " << i;
    }
  }
  const UnitWork layer = layer_of(find_plan_model("mt-nlg-530b"), "megatron", unfused("tp=8", 1, 2048));
  EXPECT_NEAR(kept(layer, PlanRecompute::none) * 105 * (1 + 34.0 / 105) / kGiB, 114.02, 0.005);
}

// Zero Bubble 2024, table 1: M_B = s b (34 h + 5 a s), M_W = 32 s b h; fused attention keeps no scores.
TEST(FormulaWork, WaitingBytesAreThoseOfZeroBubble) {
  const double s = 1024, b = 6, h = 2304, a = 24;
  const PlanModel model = gpt(22, 2304, 24, 50304, 1024);
  const UnitWork work = layer_of(model, "megatron", unfused("pp=8", 6, 1024));
  EXPECT_EQ(kept(work, PlanRecompute::none), s * b * (34 * h + 5 * a * s));
  EXPECT_EQ(work.deferred_bytes, 32 * s * b * h);
  EXPECT_EQ(kept(layer_of(model, "megatron", run_of("pp=8", 6, 1, 1024)), PlanRecompute::none), s * b * h * 34);
}

// s b h (12 + 4 k/a + 8 f/h) in 16 bits, fused attention, no dropout.
TEST(FormulaWork, GatedLayersKeepGateUpActivationAndProduct) {
  const PlanModel model = find_plan_model("llama3-8b");
  Stack stack = find_stack("megatron");
  const double sbh = 2 * 8192.0 * 4096;
  const auto layer = [&](const PlanSettings& settings) { return formula_work(*model.shape, stack, settings).at(1); };
  EXPECT_EQ(kept(layer(run_of("dp=1", 2, 1, 8192)), PlanRecompute::none), sbh * (12 + 4 * 0.25 + 8 * 3.5));
  // Column inputs are whole where they are not gathered again: 4 s b h (1 - 1/t) more.
  PlanSettings settings = run_of("tp=8", 2, 1, 8192);
  settings.tensor.sequence_parallel = true;
  EXPECT_EQ(kept(layer(settings), PlanRecompute::none), sbh * 41 / 8);
  stack.regathers = false;
  EXPECT_EQ(kept(layer(settings), PlanRecompute::none), sbh * (41.0 / 8 + 4 * 7.0 / 8));
  // Key/value heads are held in copies where tp is larger.
  EXPECT_EQ(layer(run_of("tp=16", 2, 1, 8192)).products.at(0).n, 2 * 128 + 2 * 128);
}

TEST(FormulaWork, RecomputeByOpKeepsEverySecondProduct) {
  PlanSettings settings = run_of("fsdp=8", 2, 1, 8192);
  settings.recompute = PlanRecompute::op;
  const UnitWork layer = layer_of(find_plan_model("llama3-8b"), "torchtitan", settings);
  EXPECT_EQ(kept(layer, PlanRecompute::op), 2 * 8192.0 * (2 * (4 * 4096 + 1024 + 14336) + 4 * 32));
  EXPECT_EQ(layer.remade_bytes, kept(layer, PlanRecompute::none) - kept(layer, PlanRecompute::op));
}

TEST(FormulaWork, ContextParallelismCutsTheSequence) {
  const PlanModel model = find_plan_model("llama3-8b");
  const UnitWork whole = layer_of(model, "megatron", run_of("dp=1", 1, 1, 8192));
  const UnitWork cut = layer_of(model, "megatron", run_of("cp=4", 1, 1, 8192));
  EXPECT_EQ(kept(cut, PlanRecompute::none), kept(whole, PlanRecompute::none) / 4);
  EXPECT_EQ(cut.attention_flops, whole.attention_flops / 4);
  ASSERT_EQ(cut.forward_exchanges.size(), 1U);
  EXPECT_EQ(cut.forward_exchanges[0].bytes, 3 * 4 * 2048.0 * 8 * 128);
  EXPECT_EQ(cut.backward_exchanges[0].bytes, 2 * cut.forward_exchanges[0].bytes);
}

// What a spec says of our runtime, said by bytes per element.
TEST(FormulaWork, OrthantsStackAgreesWithItsSpecs) {
  for (const char* name : {"llama3-8b", "llama-tiny", "gpt2-large", "gpt3-175b"}) {
    const PlanModel model = find_plan_model(name);
    for (const TensorPolicy& policy : {TensorPolicy{}, TensorPolicy{.sequence_parallel = true},
                                       TensorPolicy{.sequence_parallel = true, .regather = true}}) {
      PlanSettings settings = run_of(policy == TensorPolicy{} ? "dp=1" : "tp=2", 2, 1, 512);
      settings.tensor = policy;
      const UnitWork layer = layer_of(model, "orthant", settings);
      const WorkSize work{.rows = 2,
                          .sequence = 512,
                          .compute = DType::bfloat16,
                          .tensor = sharing_of(policy, settings.mesh.degree(Axis::tp))};
      const UnitCost cost = build_spec(*model.config, work).unit("layers.0").cost;
      for (const auto mode : kRecomputeModes) {
        const auto index = static_cast<std::size_t>(mode);
        EXPECT_EQ(layer.kept_bytes.at(index), static_cast<double>(cost.kept_bytes.at(index)))
            << name << " " << policy.sequence_parallel << policy.regather << " " << recompute_name(mode);
      }
    }
  }
}

TEST(FormulaWork, ProductsAreTheModelsFlops) {
  for (const char* name : {"gpt3-175b", "llama3-70b", "mixtral-8x7b", "bert-large-cased"}) {
    const PlanModel model = find_plan_model(name);
    const std::int64_t length = 512;
    for (const char* mesh : {"dp=1", "tp=4"}) {
      PlanSettings settings = run_of(mesh, 1, 1, length);
      settings.tensor.sequence_parallel = true;
      const auto tp = static_cast<double>(settings.mesh.degree(Axis::tp));
      double flops = 0;
      Stack stack = find_stack("megatron");
      stack.padded_words = 1;
      for (const auto& unit : formula_work(*model.shape, stack, settings)) {
        for (const auto& product : unit.products) flops += product.flops();
        flops += unit.attention_flops;
      }
      EXPECT_NEAR(3 * flops * tp / model_flops(model, length, true), 1, 1e-9) << name << " " << mesh;
    }
  }
}

TEST(FormulaWork, ParametersOfAllRanksAreTheModels) {
  for (const auto& name : plan_model_names()) {
    const PlanModel model = find_plan_model(name);
    if (!model.shape) continue;
    double parameters = 0;
    Stack stack = find_stack("megatron");
    stack.padded_words = 1;
    for (const auto& unit : formula_work(*model.shape, stack, run_of("dp=1", 1, 1, 1))) {
      parameters += unit.parameters - unit.borrowed;
    }
    EXPECT_EQ(parameters, static_cast<double>(model.num_parameters())) << name;
  }
  // Norms and biases of row products are on every tp rank; Megatron pads words to 128 on each.
  const double h = 12288;
  const ModelWork cut =
      formula_work(*find_plan_model("gpt3-175b").shape, find_stack("megatron"), run_of("tp=8", 1, 1, 1));
  EXPECT_EQ(cut.at(1).parameters, (12 * h * h + 7 * h) / 8 + 6 * h);
  EXPECT_EQ(cut.back().borrowed, 6400 * h);
  EXPECT_EQ(
      formula_work(*find_plan_model("gpt2").shape, find_stack("megatron"), run_of("tp=2", 1, 1, 1)).back().borrowed,
      25216 * 768.0);
}

TEST(FormulaWork, TensorParallelismExchangesTwiceALayer) {
  const PlanModel model = find_plan_model("gpt-22b");
  const double bytes = 2 * 4 * 2048.0 * 6144;
  const UnitWork plain = layer_of(model, "megatron", unfused("tp=8", 4, 2048));
  ASSERT_EQ(plain.forward_exchanges.size(), 2U);
  EXPECT_EQ(plain.forward_exchanges[0].kind, ExchangeKind::all_reduce);
  EXPECT_EQ(plain.forward_exchanges[0].bytes, bytes);
  EXPECT_FALSE(plain.forward_exchanges[0].beside_weights);
  ASSERT_EQ(plain.backward_exchanges.size(), 2U);
  EXPECT_TRUE(plain.backward_exchanges[0].beside_weights);
  EXPECT_TRUE(plain.remade_exchanges.empty());
  EXPECT_EQ(plain.output_bytes, bytes / 8);  // each tp rank sends its part

  const UnitWork cut = layer_of(model, "megatron", unfused("tp=8", 4, 2048, {.sequence_parallel = true}));
  EXPECT_EQ(cut.forward_exchanges.size(), 4U);
  EXPECT_EQ(cut.backward_exchanges.size(), 6U);  // two of them gather column inputs again
  EXPECT_EQ(cut.output_bytes, bytes / 8);
  const UnitWork again = layer_of(model, "megatron", unfused("tp=8", 4, 2048, {.recompute = PlanRecompute::full}));
  EXPECT_EQ(again.remade_exchanges.size(), 2U);
  EXPECT_TRUE(layer_of(model, "megatron", unfused("dp=2", 4, 2048)).forward_exchanges.empty());
}

TEST(FormulaWork, ExpertsAreCutOverEp) {
  const PlanModel model = find_plan_model("mixtral-8x7b");
  const double tokens = 4096;
  const double h = 4096, f = 14336;
  const UnitWork all = layer_of(model, "megatron", run_of("dp=8", 1, 1, 4096));
  EXPECT_EQ(all.expert_parameters, 8 * 3 * h * f);
  EXPECT_EQ(all.parameters, static_cast<double>(model.shape->layer_parameters()));
  PlanSettings settings = run_of("dp=8,ep=4", 1, 1, 4096);
  const UnitWork cut = layer_of(model, "megatron", settings);
  EXPECT_EQ(cut.expert_parameters, 2 * 3 * h * f);
  // Both products of two experts, each with half of the tokens that come here; query, key, value; output; router.
  EXPECT_EQ(cut.products.size(), 2 * 2 + 3U);
  EXPECT_EQ(cut.products.back().m, tokens * 2 / 2);
  ASSERT_EQ(cut.forward_exchanges.size(), 2U);
  EXPECT_EQ(cut.forward_exchanges[0].kind, ExchangeKind::all_to_all);
  EXPECT_EQ(cut.forward_exchanges[0].bytes, 2 * tokens * 2 * h);
  EXPECT_EQ(kept(cut, PlanRecompute::none), tokens * (h * 13 + 2 * (8 * f + 4 * h)));
}

TEST(FormulaWork, TheLossWorksOnCutWordsWhereTheStackDoes) {
  const PlanModel model = find_plan_model("llama3-8b");
  const PlanSettings settings = run_of("tp=4", 1, 1, 1024);
  Stack stack = find_stack("torchtitan");
  const double words = 128256.0 / 4;
  const double inputs = 2 * 2 * 1024.0 * 4096;
  const UnitWork cut = formula_work(*model.shape, stack, settings).back();
  EXPECT_EQ(cut.logits_bytes, inputs + 6 * 1024 * words);
  EXPECT_EQ(cut.backward_bytes, 16 * 1024 * words);
  stack.cuts_loss = false;
  const UnitWork whole = formula_work(*model.shape, stack, settings).back();
  EXPECT_EQ(whole.logits_bytes, inputs + 6 * 1024 * words * 4);
  EXPECT_EQ(whole.backward_bytes, 8 * 1024 * words * 4);
  EXPECT_EQ(whole.forward_exchanges.back().bytes, 2 * 1024 * words * 4);
}

TEST(FormulaWork, RefusesWhatClosedFormsDoNotCover) {
  const auto refusal = [](const PlanModel& model, const PlanSettings& settings) {
    return error_text<ConfigError>([&] { formula_work(*model.shape, find_stack("megatron"), settings); });
  };
  EXPECT_EQ(refusal(find_plan_model("llama3-8b"), run_of("tp=3", 1, 1, 8)),
            "tp=3 does not divide 32 heads and 8 key/value heads\n  fix: set tp to a divisor of both, or to a multiple "
            "of the key/value heads that divides the heads");
  EXPECT_EQ(refusal(find_plan_model("gpt3-175b"), run_of("dp=1", 1, 1, 4096)),
            "sequence 4096 is longer than the 2048 positions of the model\n  fix: set it to at most 2048, or use a "
            "model with more positions");
  PlanSettings settings = run_of("dp=1", 1, 1, 8);
  settings.recompute = PlanRecompute::op;
  EXPECT_EQ(refusal(find_plan_model("llama3-8b"), settings),
            "stack megatron does not recompute op by op\n  fix: use recompute none, selective or full, or --stack "
            "torchtitan");
  EXPECT_EQ(refusal(find_plan_model("llama3-8b"), run_of("dp=2,ep=2", 1, 1, 8)),
            "ep=2, and the model has no experts\n  fix: leave ep out");
  EXPECT_EQ(refusal(find_plan_model("mixtral-8x7b"), run_of("dp=3,ep=3", 1, 1, 8)),
            "ep=3 does not divide 8 experts\n  fix: set ep to a divisor of them");
  LlamaConfig frozen = llama_preset("llama-tiny");
  frozen.freeze = {"embed.weight"};
  EXPECT_EQ(refusal(plan_model("x", frozen), run_of("dp=1", 1, 1, 8)),
            "stack megatron trains every parameter; this model has frozen ones\n  fix: use --stack orthant, or a model "
            "without freeze");
}

}  // namespace formula_work_test
}  // namespace orthant
