// Products by cuBLASLt's plans on a card: the three products of a linear layer against float64, for every plan that
// would be measured, and their time beside libtorch's.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "orthant/base/quantile.h"
#include "orthant/ops/linear/product_plans.h"
#include "orthant/ops/linear/projection.h"

namespace orthant::nn {
namespace product_plans_device_test {

struct Sizes {
  std::int64_t tokens;
  std::int64_t in;
  std::int64_t out;
};

at::Tensor values(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::TensorOptions().device(at::kCUDA)).to(dtype);
}

// Of the largest value: rounding of the result, and of float32 sums before it.
double bound(at::ScalarType out) {
  return out == at::kBFloat16 ? 1.0 / 128 : out == at::kHalf ? 1.0 / 1024 : 2e-5;
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  const auto wide = found.to(at::kDouble);
  ASSERT_TRUE(wide.isfinite().all().item<bool>()) << what;
  EXPECT_LE((wide - wanted).abs().max().item<double>(), bound(found.scalar_type()) * wanted.abs().max().item<double>())
      << what;
}

struct Layer {
  at::Tensor x, weight, bias, residual, gy, gradient;

  Layer(const Sizes& sizes, at::ScalarType dtype, at::ScalarType reduce)
      : x(values({sizes.tokens, sizes.in}, dtype)),
        weight(values({sizes.out, sizes.in}, dtype)),
        bias(values({sizes.out}, dtype)),
        residual(values({sizes.tokens, sizes.out}, dtype)),
        gy(values({sizes.tokens, sizes.out}, dtype)),
        gradient(values({sizes.out, sizes.in}, reduce)) {}

  // A name, the operands but `out`, the form of `out`.
  struct Case {
    std::string name;
    ProductOperands operands;
    at::Tensor like;
    bool in_place = false;
  };
  std::vector<Case> cases() const {
    return {{"forward", {{}, x, weight.t(), {}, {}}, residual},
            {"forward with bias", {{}, x, weight.t(), {}, bias}, residual},
            {"forward with residual", {{}, x, weight.t(), residual, {}}, residual},
            {"forward with bias and residual", {{}, x, weight.t(), residual, bias}, residual},
            {"gradient of x", {{}, gy, weight, {}, {}}, x},
            {"first gradient of the weight", {{}, gy.t(), x, {}, {}}, gradient},
            {"added gradient of the weight", {{}, gy.t(), x, gradient, {}}, gradient, true}};
  }
};

at::Tensor expected(const ProductOperands& operands) {
  auto sum = at::mm(operands.left.to(at::kDouble), operands.right.to(at::kDouble));
  if (operands.added.defined()) sum.add_(operands.added.to(at::kDouble));
  if (operands.bias.defined()) sum.add_(operands.bias.to(at::kDouble));
  return sum;
}

// With memory that held NaN.
ProductOperands with_out(const Layer::Case& one) {
  auto operands = one.operands;
  operands.out = one.in_place ? one.like.clone() : at::full_like(one.like, std::nan(""));
  if (one.in_place) operands.added = operands.out;
  return operands;
}

TEST(DeviceProducts, EveryPlanComputesWhatFloat64Does) {
  const auto library = device_product_library(at::Device(at::kCUDA, 0));
  std::cout << library->version() << ", " << library->card() << '\n';
  const std::vector<Sizes> all = {{64, 64, 64},  {256, 512, 384},  {128, 768, 3072}, {1, 64, 128},
                                  {77, 129, 53}, {513, 1000, 257}, {2048, 128, 64},  {300, 1, 7}};
  int num_plans = 0, without = 0;
  for (const auto& sizes : all) {
    for (const auto& [dtype, reduce] :
         std::vector<std::pair<at::ScalarType, at::ScalarType>>{{at::kBFloat16, at::kFloat},
                                                                {at::kBFloat16, at::kBFloat16},
                                                                {at::kHalf, at::kFloat},
                                                                {at::kFloat, at::kFloat}}) {
      const Layer layer(sizes, dtype, reduce);
      for (const auto& one : layer.cases()) {
        const auto wanted = expected(one.operands);
        const auto product = product_of(with_out(one));
        ASSERT_TRUE(product);
        const auto plans = library->plans(*product, 8);
        without += plans.empty() ? 1 : 0;
        for (const auto& plan : plans) {
          const auto what = fmt::format("{}: {}", one.name, to_text(*product));
          EXPECT_TRUE(library->accepts(*product, plan)) << what;
          const auto first = with_out(one), second = with_out(one);
          library->multiply(*product, plan, first);
          library->multiply(*product, plan, second);
          expect_near(first.out, wanted, what);
          EXPECT_TRUE(at::equal(first.out, second.out)) << what << ": other bits the second time";
          ++num_plans;
        }
      }
    }
  }
  std::cout << fmt::format("{} plans; {} products without one\n", num_plans, without);
  EXPECT_EQ(without, 0);
}

TEST(DeviceProducts, OddPlacesInMemory) {
  const auto library = device_product_library(at::Device(at::kCUDA, 0));
  const auto memory = values({1 << 16}, at::kBFloat16);
  for (const std::int64_t first : {1, 2, 4, 8}) {
    const auto x = memory.narrow(0, first, 64 * 32).view({64, 32});
    const auto weight = memory.narrow(0, 4096 + first, 48 * 32).view({48, 32});
    const auto bias = memory.narrow(0, 8192 + first, 48);
    const ProductOperands operands{values({64, 48}, at::kBFloat16), x, weight.t(), {}, bias};
    const auto product = product_of(operands);
    ASSERT_TRUE(product);
    EXPECT_EQ(product->alignment, 2 * first);
    for (const auto& plan : library->plans(*product, 8)) {
      library->multiply(*product, plan, operands);
      expect_near(operands.out, expected(operands), fmt::format("from element {}", first));
    }
  }
}

TEST(DeviceProducts, ALinearLayerGoesByMeasuredPlans) {
  const auto library = device_product_library(at::Device(at::kCUDA, 0));
  ProductPlans plans(library);
  const Layer layer({1024, 512, 256}, at::kBFloat16, at::kFloat);
  const BelowAutograd below;
  const auto run = [&] {
    Parameter weight{.value = layer.weight, .gradient = at::empty_like(layer.gradient)};
    const auto y = project(layer.x, layer.weight, layer.bias, layer.residual, &plans);
    const auto gx = project_back(layer.gy, layer.weight, &plans);
    for (int i = 0; i < 2; ++i) add_product_gradient(weight, layer.gy, layer.x, &plans);
    expect_near(y, expected({{}, layer.x, layer.weight.t(), layer.residual, layer.bias}), "forward");
    expect_near(gx, expected({{}, layer.gy, layer.weight, {}, {}}), "gradient of x");
    expect_near(weight.gradient, expected({{}, layer.gy.t(), layer.x, {}, {}}) * 2, "gradient of the weight");
  };
  run();
  EXPECT_EQ(plans.num_planned(), 0U);
  plans.set(choose_plans(*library, plans.noted()));
  plans.in_use(true);
  run();
  EXPECT_EQ(plans.num_planned(), 4U);
}

double seconds_of(const std::function<void()>& work) {
  const at::Device device(at::kCUDA, 0);
  const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {
    c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    work();
    end.record(stream);
    end.synchronize();
    if (i >= 3) times.push_back(begin.elapsedTime(end) * 1e-3);
  }
  return quantile(times, 0.5);
}

// Sizes of BERT-base and of a Llama of 1.5 billion parameters. Prints; what is fast depends on the card.
TEST(DeviceProducts, TimesBesideLibtorch) {
  const auto library = device_product_library(at::Device(at::kCUDA, 0));
  ProductPlans planned(library);
  const BelowAutograd below;
  for (const auto& sizes : std::vector<Sizes>{{4096, 768, 768},
                                              {4096, 768, 3072},
                                              {4096, 3072, 768},
                                              {32768, 768, 2304},
                                              {16384, 2048, 3072},
                                              {16384, 2048, 16384},
                                              {16384, 8192, 2048}}) {
    const Layer layer(sizes, at::kBFloat16, at::kFloat);
    Parameter weight{.value = layer.weight, .gradient = layer.gradient, .fresh = false};
    const auto work = [&](ProductPlans* products) {
      return std::vector<std::function<void()>>{
          [=, &layer] { project(layer.x, layer.weight, {}, {}, products); },
          [=, &layer] { project(layer.x, layer.weight, layer.bias, {}, products); },
          [=, &layer] { project(layer.x, layer.weight, {}, layer.residual, products); },
          [=, &layer] { project_back(layer.gy, layer.weight, products); },
          [=, &layer, &weight] { add_product_gradient(weight, layer.gy, layer.x, products); }};
    };
    const char* const names[] = {"forward", "with bias", "with residual", "gradient of x", "gradient of weight"};
    planned.in_use(false);
    for (const auto& one : work(&planned)) one();
    planned.set(choose_plans(*library, planned.noted()));
    planned.in_use(true);
    const auto by_libtorch = work(nullptr), by_plan = work(&planned);
    for (std::size_t i = 0; i < by_plan.size(); ++i) {
      const double plain = seconds_of(by_libtorch[i]), fast = seconds_of(by_plan[i]);
      EXPECT_GT(fast, 0);
      std::cout << fmt::format("{} tokens {} -> {}, {}: libtorch {:.1f} us, plan {:.1f} us, {:.3f}\n", sizes.tokens,
                               sizes.in, sizes.out, names[i], plain * 1e6, fast * 1e6, fast / plain);
    }
  }
}

}  // namespace product_plans_device_test
}  // namespace orthant::nn
