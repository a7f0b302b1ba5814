// Products of every expert's rows with that expert's weight. Rows are sorted by expert. A parameter holds the weights
// of its experts side by side: [experts x out, in]. Their sizes change with every microbatch, so that no plan is chosen
// for them (ops/linear/product_plans.h). Where kernels of a device multiply, nobody waits for the counts of rows;
// elsewhere the host reads them. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "orthant/nn/pass.h"

namespace orthant::nn {

// Rows of each of this rank's experts, by rank that sent them: see Note [Routed rows]. There may be more rows behind
// the last expert's, which nobody reads: slots that were dropped.
struct HeldRows {
  at::Tensor counts;  // [senders x experts]
  int senders = 1;

  std::int64_t experts() const { return counts.size(0) / senders; }
};

// Each row times its expert's weight, transposed: [rows, out].
at::Tensor expert_products(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight);
// The gradient of rows.
at::Tensor expert_products_back(const at::Tensor& gy, const HeldRows& held, const at::Tensor& weight);
// Adds the gradient of every expert's weight. Of an expert without rows it is zero.
void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows, const HeldRows& held);

// The same expert by expert, by the library's products: the host waits for the counts.
namespace plain {
at::Tensor expert_products(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight);
at::Tensor expert_products_back(const at::Tensor& gy, const HeldRows& held, const at::Tensor& weight);
void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows, const HeldRows& held);
}  // namespace plain

// On a CUDA device, all experts in one start each. See expert_product.cu.
namespace device {
// Whether kernels multiply rows of that type by weights of so many outputs and inputs.
bool serves_experts(at::ScalarType type, std::int64_t experts, std::int64_t out, std::int64_t in);
// And these, which lie on a device.
bool serves_experts(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight);
bool serves_expert_gradients(const Parameter& weight, const at::Tensor& gy, const at::Tensor& rows,
                             const HeldRows& held);

// Who multiplies rows by weights. library: ATen's grouped product where there is a fast one, else as kernel.
// single_warps: the kernel as it multiplies on cards without wgmma, for tests.
enum class GroupedBy : std::uint8_t { library, kernel, single_warps };
at::Tensor expert_products(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight,
                           GroupedBy by = GroupedBy::library);
at::Tensor expert_products_back(const at::Tensor& gy, const HeldRows& held, const at::Tensor& weight,
                                GroupedBy by = GroupedBy::library);
// By the kernel on every card; with single_warps as above.
void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows, const HeldRows& held,
                          bool single_warps = false);
}  // namespace device

}  // namespace orthant::nn
