// Products of every size, on whatever processor this is: which library multiplies is nobody's business.
#include "orthant/ops/linear/matrix.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace orthant::nn {
namespace matrix_test {

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

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

// As steps of a generation have them.
TEST(Matrix, RowCountsThatComeByChanceKeepNoMemory) {
  const auto right = at::randn({512, 512});
  const auto multiply = [&](std::int64_t rows) { matrix_times(at::randn({rows, 512}), right); };
  for (const std::int64_t rows : {24, 32, 151, 160}) multiply(rows);
  const double before = resident_mib();
  for (std::int64_t rows = 24; rows < 152; ++rows) multiply(rows);
  EXPECT_LT(resident_mib() - before, 30);
}

}  // namespace matrix_test
}  // namespace orthant::nn
