// What the tests of nn compare with: gradients by central differences in float64, parameters with gradient buffers
// whose first content is NaN (an addition that reads it shows), and comparison with the worst element in the message.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "orthant/nn/pass.h"

namespace orthant::nn {

// Normal numbers that depend on the seed alone, rounded to the dtype asked for.
inline at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed, at::ScalarType dtype = at::kDouble) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::dtype(at::kDouble)).to(dtype);
}

// A leaf as parameters are: its gradient buffer holds NaN until the first addition overwrites it.
inline Parameter make_parameter(const at::Tensor& value, at::ScalarType gradient_dtype) {
  Parameter parameter;
  parameter.value = value.detach().clone().requires_grad_();
  parameter.gradient = at::full(value.sizes(), std::numeric_limits<double>::quiet_NaN(), at::dtype(gradient_dtype));
  return parameter;
}

inline Parameter make_parameter(const at::Tensor& value) {
  return make_parameter(value, value.scalar_type());
}

inline Parameter make_frozen(const at::Tensor& value) {
  Parameter parameter;
  parameter.value = value.detach().clone();
  return parameter;
}

// A leaf that gathers an input's gradient in its grad().
inline at::Tensor make_input(const at::Tensor& value) {
  return value.detach().clone().requires_grad_();
}

// One backward pass from y with gradient gy.
inline void run_backward(const at::Tensor& y, const at::Tensor& gy) {
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(y)}, {gy},
                                                        /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true, /*outputs=*/{});
}

// |actual - expected| <= absolute + relative * |expected| everywhere, compared in float64; shapes are equal.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double relative, double absolute,
                         const std::string& what) {
  ASSERT_TRUE(actual.defined()) << what << " is undefined";
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const at::Tensor a = actual.detach().to(at::kCPU, at::kDouble).reshape({-1});
  const at::Tensor e = expected.detach().to(at::kCPU, at::kDouble).reshape({-1});
  const at::Tensor excess = (a - e).abs() - relative * e.abs() - absolute;
  const auto worst = at::nan_to_num(excess, std::numeric_limits<double>::infinity()).argmax().item<std::int64_t>();
  EXPECT_LE(excess[worst].item<double>(), 0) << what << " differs most at element " << worst << ": "
                                             << a[worst].item<double>() << ", expected " << e[worst].item<double>();
}

// The tolerance that a result rounded to this dtype deserves, for values of size about one.
inline double tolerance(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-10;
  return dtype == at::kFloat ? 2e-5 : 3e-2;
}

inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  const double bound = tolerance(actual.scalar_type());
  expect_close(actual, expected, bound, bound, what);
}

inline void expect_same_bits(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  ASSERT_TRUE(actual.defined() && expected.defined()) << what;
  EXPECT_TRUE(at::equal(actual.detach(), expected.detach()))
      << what << " differs by up to " << (actual.detach() - expected.detach()).abs().max().item<double>();
}

// The gradient of sum(f() * gy) with respect to `variable`, a float64 tensor that f reads, by central differences.
inline at::Tensor numerical_gradient(const std::function<at::Tensor()>& f, const at::Tensor& variable,
                                     const at::Tensor& gy, double step = 1e-5) {
  at::NoGradGuard no_grad;
  at::Tensor gradient = at::empty_like(variable, at::MemoryFormat::Contiguous);
  at::Tensor elements = variable.view({-1});
  auto* out = gradient.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < elements.numel(); ++i) {
    const double value = elements[i].item<double>();
    elements[i].fill_(value + step);
    const double above = (f() * gy).sum().item<double>();
    elements[i].fill_(value - step);
    const double below = (f() * gy).sum().item<double>();
    elements[i].fill_(value);
    out[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline void expect_numerical(const at::Tensor& actual, const std::function<at::Tensor()>& f, const at::Tensor& variable,
                             const at::Tensor& gy, const std::string& what) {
  expect_close(actual, numerical_gradient(f, variable, gy), 1e-6, 1e-7, what);
}

}  // namespace orthant::nn
