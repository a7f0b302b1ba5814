#include "orthant/plan/estimate/unit_time.h"

#include <gtest/gtest.h>

namespace orthant {
namespace unit_time_test {

constexpr double kPeak = 100e12;
constexpr double kMemory = 1e12;  // bytes per second
constexpr double kStart = 2e-6;

// Products at half of the peak, fused attention at a quarter, sweeps at 0.8 of the memory.
Hardware card() {
  Hardware hardware;
  hardware.peak_flops = kPeak;
  hardware.products = {{{1, 0.5}}};
  hardware.attention_share = 0.25;
  hardware.memory_bandwidth = kMemory;
  hardware.memory_efficiency = 0.8;
  hardware.kernel_seconds = kStart;
  hardware.local = {.name = "in", .bandwidth = 100e9, .latency = 0, .slows_compute = 0.25};
  hardware.network = {.name = "out", .bandwidth = 10e9, .latency = 0};
  return hardware;
}

constexpr double kProduct = 2.0 * 4096 * 4096 * 4096 / (0.5 * kPeak) + kStart;

// One product, attention, and six kernels in all.
UnitWork layer() {
  UnitWork work;
  work.role = UnitRole::layer;
  work.products = {{4096, 4096, 4096}};
  work.attention_flops = 1e10;
  work.moved_bytes = 8e8;
  work.attention_moved_bytes = 4e8;
  work.backward_moved_bytes = 1.6e9;
  work.kernels = 6;
  return work;
}

UnitSeconds seconds(UnitWork work, PlanRecompute recompute = PlanRecompute::none, bool flash = true,
                    const ExchangeSpans& spans = {}, const Hardware& hardware = card()) {
  PlanSettings settings;
  settings.recompute = recompute;
  work.fused_attention = flash;
  return unit_seconds(work, settings, spans, hardware);
}

constexpr double kFused = 1e10 / (0.25 * kPeak) + kStart;
constexpr double kPlain = 1e10 / (0.5 * kPeak) + 2 * kStart;

TEST(ProductSeconds, IsBoundByThePeakOrByMemory) {
  const Hardware hardware = card();
  EXPECT_DOUBLE_EQ(product_seconds({4096, 4096, 4096}, hardware, 2), kProduct);
  EXPECT_DOUBLE_EQ(product_seconds({1, 4096, 4096}, hardware, 2), 2 * (4096 + 4096 * 4096 + 4096) / kMemory + kStart);
  EXPECT_GT(product_seconds({1, 4096, 4096}, hardware, 4),
            1.9 * product_seconds({1, 4096, 4096}, hardware, 2) - kStart);
}

TEST(ProductSeconds, FollowsTheCurveBySize) {
  Hardware hardware = card();
  hardware.products = {{{1e9, 0.2}, {1e11, 0.6}}};
  hardware.kernel_seconds = 0;
  const double flops = 2.0 * 4096 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(product_seconds({4096, 4096, 4096}, hardware, 2), flops / (kPeak * 0.6));
  EXPECT_DOUBLE_EQ(product_seconds({1000, 1000, 5000}, hardware, 2), 1e10 / (kPeak * 0.4));
}

TEST(UnitSeconds, AddsProductsAttentionAndSweeps) {
  const UnitSeconds fused = seconds(layer());
  EXPECT_DOUBLE_EQ(fused.forward, kProduct + kFused + 1e-3 + 4 * kStart);
  EXPECT_DOUBLE_EQ(fused.inputs, kProduct + 2.5 * kFused + 2e-3 + 8 * kStart);
  EXPECT_DOUBLE_EQ(fused.weights, kProduct);
  EXPECT_EQ(fused.exchanged.total(), 0);
  const UnitSeconds plain = seconds(layer(), PlanRecompute::none, false);
  EXPECT_DOUBLE_EQ(plain.forward, kProduct + kPlain + 1e-3 + 3 * kStart);
  EXPECT_DOUBLE_EQ(plain.inputs, kProduct + 2 * kPlain + 2e-3 + 6 * kStart);
}

TEST(UnitSeconds, NarrowHeadsReachLessOfThePeak) {
  UnitWork work = layer();
  const auto attention = [&](double head_size) {
    work.head_size = head_size;
    return seconds(work).forward - seconds(layer()).forward + kFused - kStart;
  };
  EXPECT_NEAR(attention(128), kFused - kStart, 1e-12);
  EXPECT_NEAR(attention(64), 1.5 * (kFused - kStart), 1e-12);
}

TEST(UnitSeconds, SumsInOneOrderSlowADevicesFusedBackward) {
  UnitWork work = layer();
  const auto priced = [&](bool deterministic, double head_size) {
    PlanSettings settings;
    settings.deterministic = deterministic;
    work.head_size = head_size;
    return unit_seconds(work, settings, {}, card());
  };
  EXPECT_DOUBLE_EQ(priced(true, 128).forward, priced(false, 128).forward);
  EXPECT_NEAR(priced(true, 128).inputs - priced(false, 128).inputs, 0.7 * 2.5 * kFused, 1e-12);
  EXPECT_DOUBLE_EQ(priced(true, 0).inputs, priced(false, 0).inputs) << "by a host's kernels";
  work.fused_attention = false;
  EXPECT_DOUBLE_EQ(priced(true, 128).inputs, priced(false, 128).inputs);
}

TEST(UnitSeconds, DroppedAttentionHasAShareOfItsOwn) {
  UnitWork work = layer();
  work.head_size = 128;
  work.drops_attention = true;
  Hardware hardware = card();
  const auto attention = [&] {
    return seconds(work, PlanRecompute::none, true, {}, hardware).forward - seconds(layer()).forward + kFused - kStart;
  };
  EXPECT_NEAR(attention(), (kFused - kStart) / kDroppedAttention, 1e-12);
  hardware.dropped_attention_share = 0.05;
  EXPECT_NEAR(attention(), 5 * (kFused - kStart), 1e-12);
  work.head_size = 64;
  EXPECT_NEAR(attention(), 1.5 * 5 * (kFused - kStart), 1e-12);
  PlanSettings settings;
  const double any_order = unit_seconds(work, settings, {}, hardware).inputs;
  settings.deterministic = true;
  EXPECT_DOUBLE_EQ(unit_seconds(work, settings, {}, hardware).inputs, any_order) << "its sums always have one order";
}

TEST(UnitSeconds, FusedAttentionOfShortSequencesIsBoundByMemory) {
  UnitWork work = layer();
  work.attention_bytes = 8e8;
  EXPECT_DOUBLE_EQ(seconds(work).forward, kProduct + 1e-3 + kStart + 1e-3 + 4 * kStart);
}

TEST(UnitSeconds, AddingGradientsCountsToWeights) {
  UnitWork work = layer();
  work.weights_moved_bytes = 8e8;
  EXPECT_DOUBLE_EQ(seconds(work).weights, kProduct + 1e-3);
}

TEST(UnitSeconds, MakesAgainWhatTheModeSays) {
  for (const bool flash : {true, false}) {
    const UnitSeconds none = seconds(layer(), PlanRecompute::none, flash);
    const auto more = [&](PlanRecompute mode) {
      const UnitSeconds unit = seconds(layer(), mode, flash);
      EXPECT_EQ(unit.forward, none.forward);
      EXPECT_EQ(unit.weights, none.weights);
      return unit.inputs - none.inputs;
    };
    EXPECT_NEAR(more(PlanRecompute::full), none.forward, 1e-12);
    EXPECT_NEAR(more(PlanRecompute::selective), (flash ? kFused : kPlain) + 0.5e-3, 1e-12);
    EXPECT_NEAR(more(PlanRecompute::op), kProduct / 2, 1e-12);
  }
}

TEST(UnitSeconds, OnlyLayersAreMadeAgain) {
  UnitWork head = layer();
  head.role = UnitRole::head;
  for (const auto mode : kPlanRecomputes) EXPECT_EQ(seconds(head, mode).total(), seconds(head).total());
}

ExchangeSpans spans(Span tp) {
  ExchangeSpans spans;
  spans.tp = tp;
  return spans;
}

TEST(UnitSeconds, WaitsForWhatIsExchanged) {
  UnitWork work = layer();
  work.forward_exchanges = {{ExchangeKind::all_reduce, Axis::tp, 1e8}};  // 1 ms over two ranks
  work.backward_exchanges = {{ExchangeKind::all_reduce, Axis::tp, 2e8}, {ExchangeKind::all_reduce, Axis::cp, 1e8}};
  work.remade_exchanges = work.forward_exchanges;
  const UnitSeconds plain = seconds(layer(), PlanRecompute::full);
  const UnitSeconds unit = seconds(work, PlanRecompute::full, true, spans({2, 2}));
  EXPECT_NEAR(unit.forward - plain.forward, 1e-3, 1e-12);
  EXPECT_NEAR(unit.inputs - plain.inputs, 3e-3, 1e-12);
  EXPECT_NEAR(unit.exchanged.total(), 4e-3, 1e-12);
  EXPECT_NEAR(seconds(work, PlanRecompute::full, true, spans({2, 1})).exchanged.total(), 40e-3, 1e-12);
  EXPECT_EQ(seconds(work, PlanRecompute::full).exchanged.total(), 0);
}

TEST(UnitSeconds, DrawingFactorsOfDropoutTakesTime) {
  UnitWork work = layer();
  work.forward_drawn = 1e6;
  work.inputs_drawn = 2e6;
  work.weights_drawn = 3e6;
  Hardware hardware = card();
  EXPECT_NEAR(seconds(work).total() - seconds(layer()).total(), hardware.moving_seconds(6e6 * kDrawnMoves), 1e-12);
  hardware.draw_rate = 1e9;
  for (const auto mode : {PlanRecompute::none, PlanRecompute::full}) {  // what is made again is among what is drawn
    const UnitSeconds plain = seconds(layer(), mode);
    const UnitSeconds drawing = seconds(work, mode, true, {}, hardware);
    EXPECT_NEAR(drawing.forward - plain.forward, 1e-3, 1e-12);
    EXPECT_NEAR(drawing.inputs - plain.inputs, 2e-3, 1e-12);
    EXPECT_NEAR(drawing.weights - plain.weights, 3e-3, 1e-12);
    EXPECT_EQ(drawing.exchanged.total(), 0);
  }
}

TEST(UnitSeconds, RanksThatWaitForEachOtherLoseTheInterruptionsOfAll) {
  Hardware hardware = card();
  hardware.interrupted = 0.5;
  const auto with = [&](int tp, int cp) {
    ExchangeSpans both = spans({tp, tp});
    both.cp = {cp, cp};
    return seconds(layer(), PlanRecompute::full, true, both, hardware);
  };
  const UnitSeconds alone = seconds(layer(), PlanRecompute::full);
  EXPECT_EQ(with(1, 1).total(), alone.total());  // a rank's own are in the card's figures
  const UnitSeconds three = with(3, 1);
  EXPECT_DOUBLE_EQ(three.forward, 4 * alone.forward);
  EXPECT_DOUBLE_EQ(three.inputs, 4 * alone.inputs);
  EXPECT_DOUBLE_EQ(three.weights, 4 * alone.weights);
  EXPECT_DOUBLE_EQ(three.exchanged.tp, 3 * alone.total());
  const UnitSeconds six = with(3, 2);
  EXPECT_DOUBLE_EQ(six.total(), 8 * alone.total());
  EXPECT_DOUBLE_EQ(six.exchanged.tp, 3 * alone.total());
  EXPECT_DOUBLE_EQ(six.exchanged.cp, 4 * alone.total());
}

TEST(UnitSeconds, WhatTravelsBesideWeightsSlowsThemOrIsWaitedFor) {
  UnitWork work = layer();
  const auto with = [&](double bytes) {
    work.backward_exchanges = {{ExchangeKind::all_reduce, Axis::tp, bytes, true}};
    return seconds(work, PlanRecompute::none, true, spans({2, 2}));
  };
  const UnitSeconds hidden = with(1e8);  // 1 ms beside 2.75 ms
  EXPECT_DOUBLE_EQ(hidden.weights, kProduct + 0.25e-3);
  EXPECT_NEAR(hidden.exchanged.total(), 0.25e-3, 1e-12);
  EXPECT_EQ(hidden.inputs, seconds(layer()).inputs);
  const UnitSeconds long_way = with(1e9);
  EXPECT_DOUBLE_EQ(long_way.weights, 10e-3);
  EXPECT_NEAR(long_way.exchanged.total(), 10e-3 - kProduct, 1e-12);
}

}  // namespace unit_time_test
}  // namespace orthant
