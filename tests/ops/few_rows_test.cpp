// Products of few rows against float64 products, by the kernels of every instruction set of this CPU.
#include "orthant/ops/linear/few_rows.h"

#include "ops/oracle.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/ops/packed_rows.h"

namespace orthant::nn {
namespace few_rows_test {

template <class T>
void compare(std::int64_t rows, std::int64_t depth, std::int64_t outputs, kernels::Isa isa) {
  const auto dtype = c10::CppTypeToScalarType<T>::value;
  const at::Tensor x = random_tensor({rows, depth + 3}, 1, dtype).narrow(1, 0, depth);
  const at::Tensor weight = random_tensor({outputs, depth}, 2, dtype), bias = random_tensor({outputs}, 3, dtype);
  const at::Tensor added = random_tensor({rows, outputs + 1}, 4, dtype).narrow(1, 1, outputs);
  const at::Tensor y = at::full({rows, outputs}, NAN, at::dtype(dtype));
  const auto table = kernels::kernels_of<kernels::FewRowsKernels<T>>(isa);
  kernels::FewRows<T> product{.rows = rows,
                              .depth = depth,
                              .x = x.const_data_ptr<T>(),
                              .x_stride = x.stride(0),
                              .weight = weight.const_data_ptr<T>(),
                              .weight_stride = depth,
                              .bias = bias.const_data_ptr<T>(),
                              .added = added.const_data_ptr<T>(),
                              .added_stride = added.stride(0),
                              .y = y.mutable_data_ptr<T>(),
                              .y_stride = outputs};
  at::Tensor packed;
  if (const auto elements = table.packed_elements(rows, depth); elements > 0) {
    packed = at::empty({elements}, x.options());
    table.pack(product, packed.mutable_data_ptr<T>());
    product.packed = packed.const_data_ptr<T>();
  }
  const std::int64_t middle = outputs / 3;
  table.multiply(product, 0, middle);
  table.multiply(product, middle, outputs);
  const at::Tensor expected =
      at::mm(x.to(at::kDouble), weight.to(at::kDouble).t()) + bias.to(at::kDouble) + added.to(at::kDouble);
  const double bound = dtype == at::kDouble ? 1e-13 : 1e-5;
  expect_close(y, expected, bound, bound, c10::str(rows, " rows, set ", static_cast<int>(isa)));
}

TEST(FewRows, AreTheProductOfTheMatrices) {
  for (const auto isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    for (std::int64_t rows = 1; rows <= kFewRows; ++rows) {
      for (const auto& [depth, outputs] :
           {std::pair<std::int64_t, std::int64_t>{1, 1}, {37, 53}, {64, 24}, {130, 77}}) {
        compare<float>(rows, depth, outputs, isa);
        compare<double>(rows, depth, outputs, isa);
      }
    }
  }
}

TEST(FewRows, ServeProjectionsUpToTheirNumber) {
  const BelowAutograd below;
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, kFewRows, kFewRows + 1}) {
    const at::Tensor x = random_tensor({rows, 40}, 1, at::kFloat), weight = random_tensor({30, 40}, 2, at::kFloat);
    expect_close(project(x, weight, {}, {}), at::mm(x.to(at::kDouble), weight.to(at::kDouble).t()), 1e-5, 1e-5, "y");
  }
}

}  // namespace few_rows_test
}  // namespace orthant::nn
