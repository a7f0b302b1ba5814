// Rows of embedding tables without autograd, twice: `fused` runs the kernels (float32 and float64 on the CPU), `plain`
// is made of ATen's functions, serves everything else and is the fused one's oracle. Local.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// ids are contiguous int64 of any shape with `tokens` elements, or with a divisor of it: then they repeat. Gradients
// are summed in the order of tokens.
struct TableRows {
  at::Tensor ids;
  at::Tensor table;  // [entries, width]
};

namespace plain {
at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens);
// gradient[ids[t]] += gy[t] for gy [tokens, width].
void add_table_rows(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& gy);
}  // namespace plain

// Tables, gy and gradient are contiguous and of one dtype.
namespace fused {
at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens);
void add_table_rows(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& gy);
}  // namespace fused

}  // namespace orthant::nn
