#include "orthant/ops/experts/expert_products.h"

#include <ATen/ATen.h>

#include "orthant/ops/linear/projection.h"

namespace orthant::nn {
namespace {

// Calls body(first row, number of rows, expert) for every expert.
template <typename Body>
void for_experts(const std::vector<std::int64_t>& ends, const Body& body) {
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < ends.size(); ++e) {
    body(begin, ends[e] - begin, static_cast<std::int64_t>(e));
    begin = ends[e];
  }
}

bool widens(const at::Tensor& rows) {
  return rows.is_cpu() && !cpu_multiplies(rows.scalar_type());
}

// [experts, out, in]
at::Tensor by_expert(const at::Tensor& joined, const std::vector<std::int64_t>& ends) {
  const auto experts = static_cast<std::int64_t>(ends.size());
  return joined.view({experts, joined.size(0) / experts, joined.size(1)});
}

}  // namespace

std::vector<std::int64_t> row_ends(const at::Tensor& held, int senders) {
  const at::Tensor counts = held.view({senders, -1}).sum(0).cumsum(0).cpu();
  return {counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + counts.numel()};
}

at::Tensor expert_products(const at::Tensor& rows, const std::vector<std::int64_t>& ends, const at::Tensor& weight) {
  const at::Tensor weights = by_expert(weight, ends);
  at::Tensor y = at::empty({rows.size(0), weights.size(1)}, rows.options());
  for_experts(ends, [&](std::int64_t begin, std::int64_t count, std::int64_t expert) {
    if (count == 0) return;
    at::Tensor part = y.narrow(0, begin, count);
    const at::Tensor own = rows.narrow(0, begin, count);
    if (widens(rows)) {
      part.copy_(project(own, weights[expert], {}, {}));
    } else {
      project_into(part, own, weights[expert], {}, {});
    }
  });
  return y;
}

at::Tensor expert_products_back(const at::Tensor& gy, const std::vector<std::int64_t>& ends, const at::Tensor& weight) {
  const at::Tensor weights = by_expert(weight, ends);
  at::Tensor gx = at::empty({gy.size(0), weights.size(2)}, gy.options());
  for_experts(ends, [&](std::int64_t begin, std::int64_t count, std::int64_t expert) {
    if (count == 0) return;
    at::Tensor part = gx.narrow(0, begin, count);
    const at::Tensor own = gy.narrow(0, begin, count);
    if (widens(gy)) {
      part.copy_(project_back(own, weights[expert]));
    } else {
      at::mm_out(part, own, weights[expert]);
    }
  });
  return gx;
}

void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows,
                          const std::vector<std::int64_t>& ends) {
  const at::Tensor gradients = by_expert(weight.gradient, ends);
  for_experts(ends, [&](std::int64_t begin, std::int64_t count, std::int64_t expert) {
    Parameter one{.value = {}, .gradient = gradients[expert], .fresh = weight.fresh, .subject = weight.subject};
    if (count > 0) {
      add_product_gradient(one, gy.narrow(0, begin, count), rows.narrow(0, begin, count), nullptr);
    } else if (one.fresh) {
      one.gradient.zero_();
    }
  });
  weight.fresh = false;
}

}  // namespace orthant::nn
