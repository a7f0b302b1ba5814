// Norms of the heads of queries and keys against plain ATen, in every dtype.
#include "orthant/ops/head_norm/head_norm.h"

#include "ops/oracle.h"

namespace orthant::nn {
namespace head_norm_test {

constexpr std::int64_t kTokens = 300, kHeads = 4, kKeyHeads = 2, kSize = 6;
constexpr std::int64_t kWidth = (kHeads + 2 * kKeyHeads) * kSize;

struct Case {
  at::Tensor qkv, gy;
  Parameter query, key;

  explicit Case(at::ScalarType dtype) {
    const at::ScalarType gradients = dtype == at::kDouble ? at::kDouble : at::kFloat;
    qkv = random_tensor({kTokens, kWidth}, 1, dtype);
    gy = random_tensor({kTokens, kWidth}, 2, dtype);
    query = make_parameter(random_tensor({kSize}, 3, dtype), gradients);
    key = make_parameter(random_tensor({kSize}, 4, dtype), gradients);
  }

  HeadNorms norms() { return {kHeads, kKeyHeads, kSize, 1e-5, &query, &key}; }
};

struct Oracle {
  at::Tensor y, qkv, query, key;  // all but y are gradients
};

Oracle oracle(const Case& given) {
  const auto leaf = [](const at::Tensor& x) { return x.detach().to(at::kDouble).clone().requires_grad_(); };
  const at::Tensor qkv = leaf(given.qkv), query = leaf(given.query.value), key = leaf(given.key.value);
  const auto parts =
      qkv.view({kTokens, -1, kSize}).split_with_sizes(std::vector<std::int64_t>{kHeads, kKeyHeads, kKeyHeads}, 1);
  const auto norm = [](const at::Tensor& x, const at::Tensor& weight) {
    return x / (x.pow(2).mean(-1, true) + 1e-5).sqrt() * weight;
  };
  const at::Tensor y = at::cat({norm(parts[0], query), norm(parts[1], key), parts[2]}, 1).flatten(1);
  run_backward(y, given.gy.to(at::kDouble));
  return {y, qkv.grad(), query.grad(), key.grad()};
}

TEST(HeadNorm, EqualsAutogradInEveryDtype) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(dtype));
    Case given(dtype);
    const Oracle expected = oracle(given);
    at::NoGradGuard no_grad;
    const double bound = tolerance(dtype) * 4;
    const auto near = [&](const at::Tensor& actual, const at::Tensor& wanted, const char* what) {
      expect_close(actual, wanted, bound, bound * std::max(1.0, wanted.abs().max().item<double>()), what);
    };
    const Normalized out = head_norm_forward(given.qkv, given.norms());
    EXPECT_EQ(out.y.scalar_type(), dtype);
    EXPECT_EQ(out.statistics.sizes(), (std::vector<std::int64_t>{kTokens, kHeads + kKeyHeads}));
    near(out.y, expected.y, "y");
    const at::Tensor gx = head_norm_backward(given.gy, given.qkv, out.statistics, given.norms(), {});
    EXPECT_EQ(gx.scalar_type(), dtype);
    near(gx, expected.qkv, "gradient of qkv");
    near(given.query.gradient, expected.query, "gradient of the weight of queries");
    near(given.key.gradient, expected.key, "gradient of the weight of keys");
  }
}

TEST(HeadNorm, GradientsMadeApartHaveTheSameBits) {
  at::NoGradGuard no_grad;
  Case both(at::kFloat), apart(at::kFloat);
  const Normalized out = head_norm_forward(both.qkv, both.norms());
  const at::Tensor gx = head_norm_backward(both.gy, both.qkv, out.statistics, both.norms(), {});
  const at::Tensor first =
      head_norm_backward(apart.gy, apart.qkv, out.statistics, apart.norms(), {.input = true, .weights = false});
  EXPECT_TRUE(apart.query.fresh);
  apart.query.value = apart.key.value = at::Tensor();  // those of weights read no weight
  EXPECT_FALSE(head_norm_backward(apart.gy, apart.qkv, out.statistics, apart.norms(), {.input = false, .weights = true})
                   .defined());
  expect_same_bits(first, gx, "gradient of qkv");
  expect_same_bits(apart.query.gradient, both.query.gradient, "queries");
  expect_same_bits(apart.key.gradient, both.key.gradient, "keys");
}

}  // namespace head_norm_test
}  // namespace orthant::nn
