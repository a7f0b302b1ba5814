#include "orthant/ops/experts/expert_products.h"

#include <ATen/ATen.h>

#include <bit>

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
// again. So it gets blocks of rows whose numbers are powers of two, of which there are few, and the other one the rest.
// A device takes all at once.
constexpr std::int64_t kLeastBlock = 64;

// Calls body(first row, number of rows, whether it is a block) for the parts of so many rows.
template <typename Body>
void for_blocks(const at::Tensor& rows, const Body& body) {
  const std::int64_t all = rows.size(0);
  if (!rows.is_cpu()) return body(std::int64_t{0}, all, true);
  std::int64_t begin = 0;
  while (all - begin >= kLeastBlock) {
    const auto block = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(all - begin)));
    body(begin, block, true);
    begin += block;
  }
  if (begin < all) body(begin, all - begin, false);
}

// out = left right
void multiply(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  for_blocks(left, [&](std::int64_t begin, std::int64_t count, bool block) {
    at::Tensor part = out.narrow(0, begin, count);
    const at::Tensor rows = left.narrow(0, begin, count);
    if (block) {
      multiply_into(part, rows, right, /*add=*/false);
    } else {
      at::mm_out(part, rows, right);
    }
  });
}

void add_gradient_of(Parameter& weight, const at::Tensor& gy, const at::Tensor& x) {
  at::Tensor& gradient = weight.gradient;
  const bool plain = gradient.is_cpu() && gy.scalar_type() == gradient.scalar_type() && !widens(gy);
  if (!plain) return add_product_gradient(weight, gy, x, nullptr);
  for_blocks(gy, [&](std::int64_t begin, std::int64_t count, bool block) {
    const at::Tensor left = gy.narrow(0, begin, count).t();
    const at::Tensor right = x.narrow(0, begin, count);
    if (block) {
      multiply_into(gradient, left, right, /*add=*/!weight.fresh);
    } else if (weight.fresh) {
      at::mm_out(gradient, left, right);
    } else {
      gradient.addmm_(left, right);
    }
    weight.fresh = false;
  });
}

// [experts, out, in]
at::Tensor by_expert(const at::Tensor& joined, const std::vector<std::int64_t>& ends) {
  const auto experts = static_cast<std::int64_t>(ends.size());
  return joined.view({experts, joined.size(0) / experts, joined.size(1)});
}

// Where the rows of each expert end. A device's are read by the host.
std::vector<std::int64_t> row_ends(const HeldRows& held) {
  const at::Tensor ends = held.counts.view({held.senders, -1}).sum(0).cumsum(0).cpu();
  return {ends.const_data_ptr<std::int64_t>(), ends.const_data_ptr<std::int64_t>() + ends.numel()};
}

}  // namespace

namespace plain {

at::Tensor expert_products(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight) {
  const auto ends = row_ends(held);
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

at::Tensor expert_products_back(const at::Tensor& gy, const HeldRows& held, const at::Tensor& weight) {
  const auto ends = row_ends(held);
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

void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows, const HeldRows& held) {
  const auto ends = row_ends(held);
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

}  // namespace plain

at::Tensor expert_products(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight) {
  if (device::serves_experts(rows, held, weight)) return device::expert_products(rows, held, weight);
  return plain::expert_products(rows, held, weight);
}

at::Tensor expert_products_back(const at::Tensor& gy, const HeldRows& held, const at::Tensor& weight) {
  if (device::serves_experts(gy, held, weight)) return device::expert_products_back(gy, held, weight);
  return plain::expert_products_back(gy, held, weight);
}

void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows, const HeldRows& held) {
  if (device::serves_expert_gradients(weight, gy, rows, held)) {
    return device::add_expert_gradients(weight, gy, rows, held);
  }
  plain::add_expert_gradients(weight, gy, rows, held);
}

}  // namespace orthant::nn
