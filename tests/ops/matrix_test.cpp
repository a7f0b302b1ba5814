// Products of every size, on whatever processor this is: which library multiplies is nobody's business.
#include "orthant/ops/linear/matrix.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace orthant::nn {
namespace matrix_test {

TEST(Matrix, EverySizeAndTypeIsMultiplied) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const std::int64_t size : {3, 64, 300}) {
      const auto left = at::randn({size, size + 1}, at::kDouble);
      const auto right = at::randn({size + 1, size + 2}, at::kDouble);
      const auto expected = at::mm(left.to(type).to(at::kDouble), right.to(type).to(at::kDouble));
      const double bound = (type == at::kBFloat16 ? 2e-2 : 1e-5) * static_cast<double>(size + 1);
      const auto product = matrix_times(left.to(type), right.to(type));
      EXPECT_LT((product.to(at::kDouble) - expected).abs().max().item<double>(), bound) << size;
      multiply_into(product, left.to(type), right.to(type), /*add=*/true);
      EXPECT_LT((product.to(at::kDouble) - 2 * expected).abs().max().item<double>(), 2 * bound) << size;
    }
  }
}

}  // namespace matrix_test
}  // namespace orthant::nn
