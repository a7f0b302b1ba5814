// Products of every expert's rows with that expert's weight. Rows are sorted by expert; `ends` says where the rows of
// each expert end. A parameter holds the weights of its experts side by side: [experts x out, in].
// Their sizes change with every microbatch, so that no plan is chosen for them (ops/linear/product_plans.h). Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "orthant/nn/pass.h"

namespace orthant::nn {

// Where the rows of each of this rank's experts end. `held`: rows per rank that sent them and expert, see Note [Routed
// rows]; on a device it is read by the host.
std::vector<std::int64_t> row_ends(const at::Tensor& held, int senders);

// Each row times its expert's weight, transposed: [rows, out].
at::Tensor expert_products(const at::Tensor& rows, const std::vector<std::int64_t>& ends, const at::Tensor& weight);
// The gradient of rows.
at::Tensor expert_products_back(const at::Tensor& gy, const std::vector<std::int64_t>& ends, const at::Tensor& weight);
// Adds the gradient of every expert's weight. Of an expert without rows it is zero.
void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows,
                          const std::vector<std::int64_t>& ends);

}  // namespace orthant::nn
