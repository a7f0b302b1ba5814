// A library of products on the CPU, whose plans differ in time and in bits: it counts what is asked of it.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <string>
#include <vector>

#include "orthant/ops/linear/product_library.h"

namespace orthant {

struct FakeProducts : nn::ProductLibrary {
  std::string version_text = "fake 1";
  std::string card_text = "a card";
  std::vector<double> times = {3, 1, 2};  // of its plans, in its order
  bool accepts_plans = true;
  int num_timed = 0;
  std::atomic<int> num_multiplied = 0;

  std::string version() const override { return version_text; }
  std::string card() const override { return card_text; }
  std::vector<cuda::ProductPlan> plans(const cuda::Product&, int most) override {
    std::vector<cuda::ProductPlan> plans;
    for (std::size_t i = 0; i < times.size() && i < static_cast<std::size_t>(most); ++i) plans.push_back({{i}, 64 * i});
    return plans;
  }
  bool accepts(const cuda::Product&, const cuda::ProductPlan& plan) override {
    return accepts_plans && plan.words[0] < times.size();
  }
  double seconds(const cuda::Product&, const cuda::ProductPlan& plan) override {
    ++num_timed;
    return times.at(plan.words[0]);
  }
  // Plan i is off by i millionths.
  void multiply(const cuda::Product&, const cuda::ProductPlan& plan, const nn::ProductOperands& operands) override {
    ++num_multiplied;
    const auto type = operands.out.scalar_type();
    auto result = at::mm(operands.left.to(type), operands.right.to(type));
    result.mul_(1 + 1e-6 * static_cast<double>(plan.words[0]));
    if (operands.added.defined()) result.add_(operands.added);
    if (operands.bias.defined()) result.add_(operands.bias);
    at::Tensor out = operands.out;
    out.copy_(result);
  }
};

}  // namespace orthant
