// What tests of a CUDA device's kernels share. Each kernel is held to the plain formulas in float64 on random shapes:
// ragged rows, one row, one token, none. Outputs lie in memory that held NaN before, and a second run must have the
// same bits.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <set>

#include "ops/card.h"
#include "orthant/cuda/kernel.h"
#include "orthant/ops/dropout/dropout.h"
#include "orthant/ops/linear/projection.h"

namespace orthant::nn::device_case {

using test::on_card;

inline const int kShapes = test::num_shapes(200, 6);

struct Random {
  std::mt19937_64 engine;
  explicit Random(std::uint64_t seed) : engine(seed) { at::manual_seed(seed); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
  // One in four is a multiple of 8, the others anything.
  std::int64_t width(std::int64_t most) { return between(0, 1) == 0 ? between(1, most) : 8 * between(1, most / 8); }
  std::int64_t rows() { return between(0, 9) == 0 ? between(0, 1) : between(1, 300); }
  at::ScalarType dtype() {
    const at::ScalarType all[] = {at::kBFloat16, at::kHalf, at::kFloat};
    return all[between(0, 2)];
  }
};

inline at::Tensor values(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, on_card(at::kFloat)).to(dtype);
}

// Bits of rounding once to the dtype, with some room for the order of sums.
inline double bound(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 1.0 / 128 : dtype == at::kHalf ? 1.0 / 1024 : 2e-5;
}

// Errors are at most `factor` of the largest number wanted, or of `least` where that is more.
inline void expect_near(const at::Tensor& got, const at::Tensor& wanted, double factor, const std::string& what,
                        double least = 1e-3) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (got.numel() == 0) return;
  const auto wide = got.to(at::kDouble);
  ASSERT_TRUE(wide.isfinite().all().item<bool>()) << what;
  const double error = (wide - wanted).abs().max().item<double>();
  const double size = std::max(wanted.abs().max().item<double>(), least);
  EXPECT_LE(error, factor * size) << what;
}

// Memory that the caching allocator hands out next holds NaN, as the host's does (card.h).
inline void poison() {
  if (test::card().is_cpu()) return;
  std::vector<at::Tensor> blocks;
  for (const std::int64_t size : {1 << 9, 1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24}) {
    for (int i = 0; i < 6; ++i) {
      blocks.push_back(at::full({size / 4}, std::numeric_limits<float>::quiet_NaN(), on_card(at::kFloat)));
    }
  }
}

// Runs `make` twice on poisoned memory; both must agree to the bit.
inline std::vector<at::Tensor> twice(const std::function<std::vector<at::Tensor>()>& make, const std::string& what) {
  const BelowAutograd below;
  poison();
  const auto first = make();
  std::vector<at::Tensor> kept;
  for (const auto& tensor : first) kept.push_back(tensor.defined() ? tensor.clone() : tensor);
  poison();
  const auto second = make();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].defined()) EXPECT_TRUE(at::equal(kept[i], second[i])) << what << ", output " << i << " differs in bits";
  }
  return kept;
}

inline at::Tensor wide(const at::Tensor& x) {
  return x.defined() ? x.to(at::kDouble) : x;
}

// The first token of a matrix, its place in a batch and its first channel are anything: with and without blocks of
// eight channels that begin where vectors do.
inline DropoutGrid random_grid(Random& random, std::int64_t tokens, std::int64_t width) {
  Pass pass;
  pass.seed = static_cast<std::uint64_t>(random.between(0, 1 << 30));
  pass.step = random.between(0, 1000);
  pass.first_row = random.between(0, 3) == 0 ? random.between(0, std::int64_t{1} << 40) : random.between(0, 1000);
  const std::int64_t first_channel = random.between(0, 1) == 0 ? 8 * random.between(0, 100) : random.between(0, 1000);
  const double rates[] = {0.1, 0.3, 0.5, 1e-6, 1};
  const auto site = fmt::format("layers.{}.dropout", random.between(0, 20));
  DropoutGrid grid =
      dropout_grid(pass, site, rates[random.between(0, 19) == 0 ? random.between(3, 4) : random.between(0, 2)],
                   {tokens, 1, width}, random.between(0, 50), first_channel);
  grid.positions = static_cast<std::uint64_t>(random.between(1, 300));
  grid.first_token = static_cast<std::uint64_t>(random.between(0, 5000));
  return grid;
}

// All variants that the shapes of a test may take, compiled at once: one after the other they take half a minute. The
// emulated card has few shapes, and compiles what they take.
inline void prepare(const std::vector<cuda::KernelLibrary::Variant>& variants, std::initializer_list<int> parts) {
  if (test::card().is_cpu()) return;
  std::set<std::pair<const cuda::Source*, cuda::Values>> all;
  for (auto variant : variants) {
    for (const int aligned : {0, 1}) {
      for (const int part : parts) {
        variant.values[1] = aligned;
        variant.values[4] = part;
        all.emplace(variant.source, variant.values);
      }
    }
  }
  std::vector<cuda::KernelLibrary::Variant> list;
  for (const auto& [source, values] : all) list.push_back({source, values});
  at::empty({1}, on_card(at::kFloat));
  cuda::KernelLibrary::of_process().prepare(list);
}

}  // namespace orthant::nn::device_case
