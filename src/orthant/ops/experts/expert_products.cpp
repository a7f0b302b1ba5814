#include "orthant/ops/experts/expert_products.h"

#include <ATen/ATen.h>

#include "orthant/ops/linear/matrix.h"
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

// Note [Sizes that change]: how many rows an expert has is another number in every microbatch. The faster library
// compiles a product for its sizes and keeps what it compiled, hundreds of megabytes of it for sizes that hardly come
// again. So it gets whole blocks of rows, of which there are few numbers, and the other one the rest. A device takes
// all at once.
constexpr std::int64_t kBlockRows = 64;

std::int64_t in_blocks(const at::Tensor& rows) {
  return rows.is_cpu() ? rows.size(0) / kBlockRows * kBlockRows : rows.size(0);
}

// out = left right
void multiply(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  const std::int64_t blocks = in_blocks(left);
  const std::int64_t rest = left.size(0) - blocks;
  if (blocks > 0) multiply_into(out.narrow(0, 0, blocks), left.narrow(0, 0, blocks), right, /*add=*/false);
  if (rest == 0) return;
  at::Tensor part = out.narrow(0, blocks, rest);
  at::mm_out(part, left.narrow(0, blocks, rest), right);
}

void add_gradient_of(Parameter& weight, const at::Tensor& gy, const at::Tensor& x) {
  at::Tensor& gradient = weight.gradient;
  const bool plain = gradient.is_cpu() && gy.scalar_type() == gradient.scalar_type() && !widens(gy);
  if (!plain) return add_product_gradient(weight, gy, x, nullptr);
  const std::int64_t blocks = in_blocks(gy);
  const std::int64_t rest = gy.size(0) - blocks;
  if (blocks > 0) {
    multiply_into(gradient, gy.narrow(0, 0, blocks).t(), x.narrow(0, 0, blocks), /*add=*/!weight.fresh);
    weight.fresh = false;
  }
  if (rest == 0) return;
  const at::Tensor left = gy.narrow(0, blocks, rest).t();
  const at::Tensor right = x.narrow(0, blocks, rest);
  if (weight.fresh) {
    at::mm_out(gradient, left, right);
  } else {
    gradient.addmm_(left, right);
  }
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
    const at::Tensor part = y.narrow(0, begin, count);
    const at::Tensor own = rows.narrow(0, begin, count);
    if (widens(rows)) {
      part.copy_(project(own, weights[expert], {}, {}));
    } else {
      multiply(part, own, weights[expert].t());
    }
  });
  return y;
}

at::Tensor expert_products_back(const at::Tensor& gy, const std::vector<std::int64_t>& ends, const at::Tensor& weight) {
  const at::Tensor weights = by_expert(weight, ends);
  at::Tensor gx = at::empty({gy.size(0), weights.size(2)}, gy.options());
  for_experts(ends, [&](std::int64_t begin, std::int64_t count, std::int64_t expert) {
    if (count == 0) return;
    const at::Tensor part = gx.narrow(0, begin, count);
    const at::Tensor own = gy.narrow(0, begin, count);
    if (widens(gy)) {
      part.copy_(project_back(own, weights[expert]));
    } else {
      multiply(part, own, weights[expert]);
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
      add_gradient_of(one, gy.narrow(0, begin, count), rows.narrow(0, begin, count));
    } else if (one.fresh) {
      one.gradient.zero_();
    }
  });
  weight.fresh = false;
}

}  // namespace orthant::nn
