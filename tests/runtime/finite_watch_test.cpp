// The watch for values that are not finite, against libtorch's own test of every element.
#include "orthant/runtime/finite_watch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "runtime/toy_graph.h"

namespace orthant {
namespace finite_watch_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<at::ScalarType> kTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kFloat8_e5m2};

TEST(AllFinite, FindsOneElementAnywhereInEveryType) {
  std::mt19937_64 random(7);
  for (const auto type : kTypes) {
    for (const std::int64_t size : {1, 2, 31, 4096, 4097, 150001}) {
      for (const double bad : {kNan, kInfinity, -kInfinity}) {
        const auto values = at::ones({size}).to(type);
        ASSERT_TRUE(all_finite(values)) << type << ' ' << size;
        const auto place = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size));
        values.narrow(0, place, 1).copy_(at::full({1}, bad).to(type));
        EXPECT_FALSE(all_finite(values)) << type << ' ' << bad << " at " << place << " of " << size;
      }
    }
  }
}

TEST(AllFinite, LargestSmallestAndEmptyAreFinite) {
  EXPECT_TRUE(all_finite(at::full({9}, std::numeric_limits<float>::max(), at::kFloat))) << "their sum is not";
  EXPECT_TRUE(all_finite(at::full({9}, -std::numeric_limits<double>::max(), at::kDouble)));
  EXPECT_TRUE(all_finite(at::full({9}, 65504.0, at::kHalf)));
  EXPECT_TRUE(all_finite(at::full({9}, std::numeric_limits<float>::denorm_min(), at::kFloat)));
  EXPECT_TRUE(all_finite(at::empty({0}, at::kFloat)));
  EXPECT_TRUE(all_finite(at::ones({3}, at::kLong)));
  EXPECT_TRUE(all_finite(at::Tensor()));
}

TEST(AllFinite, LooksAtTheElementsOfAViewAlone) {
  const auto whole = at::zeros({8, 6});
  whole[3][5] = kNan;
  EXPECT_TRUE(all_finite(whole.narrow(1, 0, 5))) << "with gaps";
  EXPECT_FALSE(all_finite(whole.narrow(1, 3, 3)));
  EXPECT_FALSE(all_finite(whole.t()));
  EXPECT_TRUE(all_finite(whole.narrow(0, 4, 4)));
  EXPECT_FALSE(all_finite(whole[3][5].expand({4, 4})));
}

TEST(FiniteWatch, KeepsTheResultsOfTwoSteps) {
  FiniteWatch watch(4, at::kCPU);
  watch.begin();
  watch.look(1, at::full({3}, kNan));
  watch.look(1, at::ones({3}));  // a second look does not mend the first
  watch.look(2, at::ones({3}));
  watch.begin();
  watch.look(3, at::full({3}, kInfinity));
  EXPECT_EQ(watch.bad(1), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(watch.bad(0), (std::vector<bool>{false, false, false, true}));
  watch.begin();
  EXPECT_EQ(watch.bad(1), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(watch.bad(0), std::vector<bool>(4));
}

TEST(FiniteWatch, AVerdictIsZeroOrNan) {
  FiniteWatch watch(4, at::kCPU);
  watch.begin();
  watch.look(2, at::full({3}, -kInfinity));
  EXPECT_TRUE(std::isnan(watch.verdict({0, 4}).item<double>()));
  EXPECT_TRUE(std::isnan(watch.verdict({2, 3}).item<double>()));
  EXPECT_EQ(watch.verdict({0, 2}).item<double>(), 0);
  EXPECT_EQ(watch.verdict({3, 3}).item<double>(), 0) << "of no slots";
}

// What an executor tells its observer.
struct Told : UnitObserver {
  void wrote(int unit, int microbatch, Tensors& outputs) override {
    for (const auto& output : outputs) forwards[{unit, microbatch}] += output.numel();
    if (unit == 0 && replace) outputs[0] = at::full_like(outputs[0], kNan);
  }
  void handed_back(int unit, int microbatch, std::size_t input, const at::Tensor& gradient) override {
    backwards[{unit, microbatch}] += 1 + static_cast<int>(input);
    bad_gradients += gradient.defined() && !all_finite(gradient);
  }

  std::map<std::pair<int, int>, std::int64_t> forwards;
  std::map<std::pair<int, int>, int> backwards;
  int bad_gradients = 0;
  bool replace = false;
};

TEST(UnitObserver, IsToldOfEveryOutputAndInputGradientOnce) {
  for (const auto recompute : {Recompute::none, Recompute::full}) {
    test::Toy toy(test::toy_spec());
    Executor executor(toy.graph, toy.units, recompute);
    Told told;
    executor.observe(&told);
    toy.store.begin_step(std::vector<bool>(toy.graph.units.size(), false));
    const auto actions = lower(one_stage(2), on_one_pp_coordinate(even_stages(toy.graph, 1)), toy.graph, 0);
    executor.train(actions, test::toy_rows(2), {.seed = 3, .step = 5});
    EXPECT_EQ(told.forwards.size(), 6U * 2U);
    for (const auto& [place, elements] : told.forwards) EXPECT_EQ(elements, place.first < 4 ? 4 * test::kWidth : 1);
    // Unit a reads a batch field; e and f have two inputs.
    EXPECT_EQ(told.backwards.size(), 5U * 2U);
    for (const auto& [place, inputs] : told.backwards) EXPECT_EQ(inputs, place.first < 4 ? 1 : 3);
    EXPECT_EQ(told.bad_gradients, 0);
  }
}

TEST(UnitObserver, WhatItPutsInPlaceOfAnOutputTravelsOn) {
  test::Toy toy(test::toy_spec());
  Executor executor(toy.graph, toy.units, Recompute::none);
  Told told;
  told.replace = true;
  executor.observe(&told);
  toy.store.begin_step(std::vector<bool>(toy.graph.units.size(), false));
  const auto actions = lower(one_stage(2), on_one_pp_coordinate(even_stages(toy.graph, 1)), toy.graph, 0);
  const auto losses = executor.train(actions, test::toy_rows(2), {.seed = 3, .step = 5});
  EXPECT_TRUE(std::isnan(losses.at("first_loss").item<double>()));
  EXPECT_GT(told.bad_gradients, 0);
}

}  // namespace finite_watch_test
}  // namespace orthant
