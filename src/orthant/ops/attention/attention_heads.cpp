#include "orthant/ops/attention/attention_heads.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "orthant/base/error.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/attention/cpu_kernels.h"

namespace orthant::nn {
namespace {

void check_rotary(const at::Tensor& qkv, const AttentionOptions& options) {
  for (const at::Tensor& table : {options.rotary.cos, options.rotary.sin}) {
    if (!table.defined() || options.head_size % 2 != 0 || table.dim() != 2 || table.size(0) < qkv.size(1) ||
        table.size(1) * 2 != options.head_size) {
      throw InternalError(
          fmt::format("rotary tables do not fit: head_size {} must be even, cos and sin be [{} or more, head_size / 2]",
                      options.head_size, qkv.size(1)));
    }
  }
}

// One call of the kernels: pointers into whole tensors, moved to a group by at().
template <class T>
struct FusedHeads {
  kernels::AttentionGroup<T> group;  // of the first row's first group
  const bool* key_mask = nullptr;
  const HeadsSetup& setup;
  std::int64_t rows;

  FusedHeads(const at::Tensor& qkv, const HeadsOutput& output, const HeadsSetup& heads_setup, bool rotated)
      : setup(heads_setup), rows(qkv.size(0)) {
    const AttentionOptions& options = setup.options;
    group.sequence = qkv.size(1);
    group.heads = options.heads / options.kv_heads;
    group.head_size = options.head_size;
    group.causal = options.causal;
    group.window = options.window;
    group.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(options.head_size)));
    if (rotated && options.rotary.cos.defined()) {
      group.cos = options.rotary.cos.const_data_ptr<T>();
      group.sin = options.rotary.sin.const_data_ptr<T>();
    }
    if (options.key_mask.defined()) key_mask = options.key_mask.const_data_ptr<bool>();
    if (setup.drops) {
      group.dropout.factors = kernels::kernels<kernels::DropoutKernels<T>>().factors;
      group.dropout.draw = setup.dropout.draw;
      group.dropout.head_step = kMaxPositions * kMaxChannels;
      group.dropout.query_step = kMaxChannels;
    }
    group.stride = qkv.size(2);
    group.q = qkv.mutable_data_ptr<T>();
    group.out = output.out.mutable_data_ptr<T>();
    group.out_stride = options.heads * options.head_size;
    group.lse = output.lse.mutable_data_ptr<T>();
  }

  // Group `index` counts key/value heads within rows. Scratch is the caller's.
  kernels::AttentionGroup<T> at(std::int64_t index, T* scratch) const {
    const AttentionOptions& options = setup.options;
    const std::int64_t row = index / options.kv_heads, kv_head = index % options.kv_heads;
    const std::int64_t head = kv_head * group.heads, size = options.head_size;
    kernels::AttentionGroup<T> here = group;
    T* const first = group.q + row * group.sequence * group.stride;
    here.q = first + head * size;
    here.k = first + (options.heads + kv_head) * size;
    here.v = first + (options.heads + options.kv_heads + kv_head) * size;
    here.out = group.out + row * group.sequence * group.out_stride + head * size;
    here.lse = group.lse + (row * options.heads + head) * group.sequence;
    here.key_mask = key_mask == nullptr ? nullptr : key_mask + row * group.sequence;
    here.dropout.first = setup.drops ? setup.element(row, head) : 0;
    here.scratch = scratch;
    return here;
  }

  // body(group) for every group, on ATen's threads.
  template <class Body>
  void for_groups(const at::TensorOptions& options, const Body& body) const {
    const std::int64_t elements =
        kernels::kernels<kernels::AttentionKernels<T>>().scratch_elements(group.sequence, group.head_size);
    at::parallel_for(0, rows * setup.options.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      const at::Tensor scratch = at::empty({elements}, options);
      for (std::int64_t index = begin; index < end; ++index) body(at(index, scratch.mutable_data_ptr<T>()));
    });
  }
};

HeadsOutput fused_forward(const at::Tensor& qkv, const HeadsSetup& setup, bool rotate) {
  const AttentionOptions& options = setup.options;
  const std::int64_t rows = qkv.size(0), sequence = qkv.size(1);
  HeadsOutput output = {at::empty({rows, sequence, options.heads * options.head_size}, qkv.options()),
                        at::empty({rows, options.heads, sequence}, qkv.options())};
  kernels::with_element(qkv, [&](auto element) {
    using T = decltype(element);
    FusedHeads<T>(qkv, output, setup, rotate)
        .for_groups(qkv.options(), kernels::kernels<kernels::AttentionKernels<T>>().forward);
  });
  return output;
}

at::Tensor fused_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                          const HeadsSetup& setup) {
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  kernels::with_element(qkv, [&](auto element) {
    using T = decltype(element);
    const FusedHeads<T> heads(qkv, output, setup, true);
    T* const d_first = d_qkv.mutable_data_ptr<T>();
    const T* const d_out_first = d_out.const_data_ptr<T>();
    const auto backward = kernels::kernels<kernels::AttentionKernels<T>>().backward;
    heads.for_groups(qkv.options(), [&](const kernels::AttentionGroup<T>& group) {
      const auto gradient = [&](const T* value) { return d_first + (value - heads.group.q); };
      backward(group, {d_out_first + (group.out - heads.group.out), gradient(group.q), gradient(group.k),
                       gradient(group.v), group.stride});
    });
  });
  return d_qkv;
}

}  // namespace

std::uint64_t HeadsSetup::element(std::int64_t row, std::int64_t head) const {
  const std::uint64_t place = (dropout.first_row + static_cast<std::uint64_t>(row)) * kMaxHeads;
  return (place + static_cast<std::uint64_t>(options.first_head + head)) * kMaxPositions * kMaxChannels;
}

HeadsSetup heads_setup(const at::Tensor& qkv, const AttentionOptions& options, const Pass& pass) {
  if (options.kv_heads < 1 || options.heads % options.kv_heads != 0 || options.first_head + options.heads > kMaxHeads ||
      qkv.dim() != 3 || qkv.size(2) != (options.heads + 2 * options.kv_heads) * options.head_size) {
    throw InternalError(fmt::format(
        "attention of {} heads and {} key/value heads of size {}: kv_heads must divide heads (at most {}), and qkv be "
        "[rows, sequence, (heads + 2 kv_heads) * head_size], not {}",
        options.heads, options.kv_heads, options.head_size, kMaxHeads, c10::str(qkv.sizes())));
  }
  HeadsSetup setup = {options};
  if (options.window >= qkv.size(1)) setup.options.window = 0;  // it hides nothing
  const at::ScalarType dtype = kernels::compute_dtype(qkv);
  if (options.rotary.cos.defined() || options.rotary.sin.defined()) {
    check_rotary(qkv, options);
    setup.options.rotary = {options.rotary.cos.to(dtype).contiguous(), options.rotary.sin.to(dtype).contiguous()};
  }
  if (options.key_mask.defined()) {
    if (options.key_mask.sizes() != qkv.sizes().slice(0, 2)) {
      throw InternalError(fmt::format("key_mask {} is not [rows, sequence] of qkv {}",
                                      c10::str(options.key_mask.sizes()), c10::str(qkv.sizes())));
    }
    setup.options.key_mask = options.key_mask.to(at::kBool).contiguous();
  }
  setup.repeatable = pass.repeatable;
  setup.drops = drops(options.dropout, pass);
  if (setup.drops) {
    setup.dropout = dropout_grid(pass, options.site, options.dropout, {options.heads, qkv.size(1), qkv.size(1)});
  }
  return setup;
}

HeadsOutput heads_forward(const at::Tensor& qkv, const HeadsSetup& setup, bool rotate) {
  if (kernels::serve(qkv)) return fused_forward(qkv, setup, rotate);
  if (rotate) rotate_heads(qkv, setup.options);
  if (device::serves_heads(qkv, setup)) return device::heads_forward(qkv, setup);
  if (!qkv.is_cpu()) return plain_heads_forward(qkv, setup);
  HeadsOutput output = fused_forward(qkv.to(at::kFloat), setup, false);
  return {output.out.to(qkv.scalar_type()), output.lse};
}

at::Tensor heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                          const HeadsSetup& setup) {
  if (kernels::serve(qkv)) return fused_backward(qkv, output, d_out, setup);
  if (device::serves_heads(qkv, setup)) return device::heads_backward(qkv, output, d_out, setup);
  if (!qkv.is_cpu()) return plain_heads_backward(qkv, output, d_out, setup);
  const HeadsOutput wide = {output.out.to(at::kFloat), output.lse};
  return fused_backward(qkv.to(at::kFloat), wide, d_out.to(at::kFloat), setup).to(qkv.scalar_type());
}

}  // namespace orthant::nn
