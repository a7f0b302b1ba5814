// Which products there are plans for, which plan is chosen, and that the three products of a linear layer go by it.
#include "orthant/ops/linear/product_plans.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/fake_products.h"
#include "orthant/ops/linear/projection.h"

namespace orthant::nn {
namespace product_plans_test {

at::Tensor values(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape).to(dtype);
}

TEST(ProductPlans, AProductIsKnownByHowItsMatricesLie) {
  const auto x = values({5, 3}), weight = values({4, 3}), out = values({5, 4}), bias = values({4});
  const auto forward = product_of({out, x, weight.t(), {}, bias});
  ASSERT_TRUE(forward);
  EXPECT_EQ(*forward, (cuda::Product{.rows = 5,
                                     .columns = 4,
                                     .depth = 3,
                                     .right_turned = true,
                                     .left_stride = 3,
                                     .right_stride = 3,
                                     .out_stride = 4,
                                     .has_bias = true}));
  const auto gradient = values({4, 3}), gy = values({5, 4}, at::kBFloat16), narrow = x.to(at::kBFloat16);
  const auto back = product_of({gradient, gy.t(), narrow, gradient, {}});
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, (cuda::Product{.rows = 4,
                                  .columns = 3,
                                  .depth = 5,
                                  .left_turned = true,
                                  .left_stride = 4,
                                  .right_stride = 3,
                                  .out_stride = 3,
                                  .in = cuda::Element::bfloat16,
                                  .adds = true}));
  EXPECT_EQ(cuda::to_text(*back), "bfloat16 [5, 4]^T [5, 3], added into float32");
}

TEST(ProductPlans, ThePlaceInMemoryIsPartOfIt) {
  const auto memory = values({64});
  const auto at_element = [&](std::int64_t first) {
    return product_of({values({2, 2}), memory.narrow(0, first, 8).view({2, 4}), values({4, 2}), {}, {}})->alignment;
  };
  EXPECT_EQ(at_element(4), 16);
  EXPECT_EQ(at_element(2), 8);
  EXPECT_EQ(at_element(1), 4);
  const auto strided = product_of({values({2, 2}), values({2, 8}).narrow(1, 0, 4), values({4, 2}), {}, {}});
  EXPECT_EQ(strided->left_stride, 8);
}

TEST(ProductPlans, LibtorchKeepsWhatNoPlanIsFor) {
  const auto x = values({2, 4}), w = values({4, 2}), out = values({2, 2});
  EXPECT_TRUE(product_of({out, x, w, {}, {}}));
  EXPECT_FALSE(product_of({out.to(at::kDouble), x.to(at::kDouble), w.to(at::kDouble), {}, {}}));
  EXPECT_FALSE(product_of({out.to(at::kHalf), x, w, {}, {}}));
  EXPECT_FALSE(product_of({out, x.to(at::kHalf), w, {}, {}}));
  EXPECT_FALSE(product_of({out, values({2, 0}), values({0, 2}), {}, {}}));
  EXPECT_FALSE(product_of({out, values({2, 8}).slice(1, 0, 8, 2), w, {}, {}}));
  EXPECT_FALSE(product_of({out.t(), x, w, {}, {}}));
  EXPECT_FALSE(product_of({out, x, w, out.t(), {}}));
  EXPECT_FALSE(product_of({out, x, w, {}, values({2}, at::kHalf)}));
}

TEST(ProductPlans, TheFastestIsChosenAndTheFirstOfEquals) {
  FakeProducts library;
  const std::set<cuda::Product> products = {{.rows = 1}, {.rows = 2}};
  auto chosen = choose_plans(library, products);
  ASSERT_EQ(chosen.size(), 2U);
  for (const auto& [product, plan] : chosen) EXPECT_EQ(plan, (ChosenPlan{{{1}, 64}, 1, 3}));
  EXPECT_EQ(library.num_timed, 6);
  library.times = {2, 1, 1};
  EXPECT_EQ(choose_plans(library, products).begin()->second.plan.words[0], 1U);
  library.times = std::vector<double>(20, 1.0);
  library.num_timed = 0;
  EXPECT_EQ(choose_plans(library, {{.rows = 1}}).begin()->second.plan.words[0], 0U);
  EXPECT_EQ(library.num_timed, 8);
  library.times.clear();
  EXPECT_TRUE(choose_plans(library, products).empty());
}

// Forward with and without bias and residual, the input's gradient, the weight's in two additions.
std::vector<at::Tensor> linear_layer(ProductPlans* products) {
  at::manual_seed(3);
  const auto x = values({6, 8}), residual = values({6, 5}), gy = values({6, 5}), bias = values({5});
  Parameter weight{.value = values({5, 8}), .gradient = values({5, 8})};
  const BelowAutograd below;
  std::vector<at::Tensor> results;
  for (const auto& added : {at::Tensor(), residual}) {
    for (const auto& with : {at::Tensor(), bias}) {
      results.push_back(project(x, weight.value, with, added, products));
    }
  }
  results.push_back(project_back(gy, weight.value, products));
  for (int i = 0; i < 2; ++i) add_product_gradient(weight, gy, x, products);
  results.push_back(weight.gradient);
  return results;
}

TEST(ProductPlans, ProductsOfALinearLayerGoByThem) {
  const auto library = std::make_shared<FakeProducts>();
  const auto expected = linear_layer(nullptr);
  ProductPlans plans(library);
  auto found = linear_layer(&plans);
  EXPECT_EQ(library->num_multiplied, 0);
  EXPECT_EQ(plans.noted().size(), 7U);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
  plans.set(choose_plans(*library, plans.noted()));
  plans.in_use(true);
  found = linear_layer(&plans);
  EXPECT_EQ(library->num_multiplied, 7);
  EXPECT_EQ(plans.num_planned(), 7U);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].allclose(expected[i], 1e-4, 1e-5)) << i;
  plans.in_use(false);
  linear_layer(&plans);
  EXPECT_EQ(library->num_multiplied, 7);
}

}  // namespace product_plans_test
}  // namespace orthant::nn
