// What cuBLASLt is asked for, with a library that computes on the host: matrices that lie in every way, addends, plans.
#include "orthant/cuda/cublas_lt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error_text.h"
#include "orthant/base/error.h"

namespace orthant::cuda {
namespace cublas_lt_test {

// A matrix that lies row by row, or its transposed one does, with some memory between rows.
struct Matrix {
  std::int64_t rows, columns, stride;
  bool turned;
  std::vector<float> memory;

  Matrix(std::int64_t num_rows, std::int64_t num_columns, bool is_turned, int first)
      : rows(num_rows), columns(num_columns), stride((is_turned ? rows : columns) + 3), turned(is_turned) {
    memory.assign(static_cast<std::size_t>((turned ? columns : rows) * stride), std::nanf(""));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) at(i, j) = static_cast<float>((i * 7 + j * 5 + first) % 11) - 5;
    }
  }
  float& at(std::int64_t i, std::int64_t j) {
    return memory[static_cast<std::size_t>(turned ? j * stride + i : i * stride + j)];
  }
};

TEST(CublasLt, MultipliesMatricesThatLieRowByRow) {
  const CublasLt library;
  EXPECT_EQ(library.version(), "cuBLASLt 130100");
  for (int kind = 0; kind < 32; ++kind) {
    const bool left_turned = (kind & 1) != 0, right_turned = (kind & 2) != 0;
    Matrix left(4, 5, left_turned, 1), right(5, 3, right_turned, 2), added(4, 3, false, 3), out(4, 3, false, 4);
    const std::vector<float> bias = {10, 20, 30};
    const Product product{.rows = 4,
                          .columns = 3,
                          .depth = 5,
                          .left_turned = left_turned,
                          .right_turned = right_turned,
                          .left_stride = left.stride,
                          .right_stride = right.stride,
                          .out_stride = out.stride,
                          .adds = (kind & 4) != 0,
                          .has_bias = (kind & 8) != 0,
                          .alignment = 4};
    const auto plans = library.plans(product, 8);
    ASSERT_EQ(plans.size(), 2U);
    std::vector<float> workspace(64);
    const bool in_place = (kind & 16) != 0;
    if (in_place) out = added;
    library.multiply(product, plans[1],
                     {.out = out.memory.data(),
                      .left = left.memory.data(),
                      .right = right.memory.data(),
                      .added = in_place ? out.memory.data() : added.memory.data(),
                      .bias = bias.data(),
                      .workspace = workspace.data()},
                     nullptr);
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 3; ++j) {
        float sum = product.adds ? added.at(i, j) : 0;
        if (product.has_bias) sum += bias[static_cast<std::size_t>(j)];
        for (std::int64_t k = 0; k < 5; ++k) sum += left.at(i, k) * right.at(k, j);
        EXPECT_EQ(out.at(i, j), sum) << kind << ": " << i << ", " << j;
      }
    }
  }
}

TEST(CublasLt, KnowsItsPlans) {
  const CublasLt library;
  const Product product{.rows = 2, .columns = 3, .depth = 4, .left_stride = 4, .right_stride = 3, .out_stride = 3};
  const auto plans = library.plans(product, 1);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_TRUE(library.accepts(product, plans[0]));
  EXPECT_TRUE(library.accepts(product, {{1}, 64}));
  EXPECT_FALSE(library.accepts(product, {{1}, 0}));           // without the workspace it needs
  EXPECT_FALSE(library.accepts(product, {{1}, 1ULL << 40}));  // with more than any plan has
  EXPECT_FALSE(library.accepts(product, {{9}, 64}));
  const Product none{.rows = 2, .columns = 13, .depth = 4, .left_stride = 4, .right_stride = 13, .out_stride = 13};
  EXPECT_TRUE(library.plans(none, 8).empty());
  const auto text = error_text<InternalError>([&] { library.multiply(product, {{9}, 64}, {}, nullptr); });
  EXPECT_NE(text.find("float32 [2, 4] [4, 3]: cuBLASLt says: not supported (15)"), std::string::npos) << text;
}

}  // namespace cublas_lt_test
}  // namespace orthant::cuda
