#include "orthant/ops/attention/attention_heads.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/ops/attention/fused_blocks.h"

namespace orthant::nn {
namespace {

void check_heads(const AttentionOptions& options) {
  if (options.kv_heads < 1 || options.heads % options.kv_heads != 0 || options.first_head + options.heads > kMaxHeads) {
    throw InternalError(
        fmt::format("attention of {} heads and {} key/value heads: kv_heads must divide heads (at most {})",
                    options.heads, options.kv_heads, kMaxHeads));
  }
}

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

HeadsOutput fused_forward(const at::Tensor& qkv, const HeadsSetup& setup, bool rotate) {
  const AttentionOptions& options = setup.options;
  const std::int64_t rows = qkv.size(0), sequence = qkv.size(1);
  HeadsOutput output = {at::empty({rows, sequence, options.heads * options.head_size}, qkv.options()),
                        at::empty({rows, options.heads, sequence}, qkv.options())};
  const std::vector<HeadsBlock> blocks = blocks_of(setup, rows, sequence);
  kernels::with_element(qkv, [&](auto element) {
    FusedBlocks<decltype(element)> fused(split_heads(qkv.flatten(0, 1), options), blocks, setup);
    if (rotate && options.rotary.cos.defined()) fused.rotate_by(options.rotary);
    fused.give(output.out, output.lse);
    fused.forward();
  });
  return output;
}

at::Tensor fused_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                          const HeadsSetup& setup) {
  const AttentionOptions& options = setup.options;
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  const std::vector<HeadsBlock> blocks = blocks_of(setup, qkv.size(0), qkv.size(1));
  kernels::with_element(qkv, [&](auto element) {
    FusedBlocks<decltype(element)> fused(split_heads(qkv.flatten(0, 1), options), blocks, setup);
    if (options.rotary.cos.defined()) fused.rotate_by(options.rotary);
    fused.give(output.out, output.lse);
    fused.backward(d_out, {}, split_heads(d_qkv.flatten(0, 1), options));
  });
  return d_qkv;
}

}  // namespace

std::uint64_t HeadsSetup::element(std::int64_t row, std::int64_t head) const {
  const std::uint64_t place = (dropout.first_row + static_cast<std::uint64_t>(row)) * kMaxHeads;
  return (place + static_cast<std::uint64_t>(options.first_head + head)) * kMaxPositions * kMaxChannels;
}

HeadsSetup blocks_setup(std::int64_t rows, std::int64_t sequence, const AttentionOptions& options, const Pass& pass) {
  check_heads(options);
  HeadsSetup setup = {options};
  setup.options.rotary = {};
  setup.options.document_starts = setup.options.document_rows = at::Tensor();
  setup.options.unpadded = {};
  if (options.window >= sequence) setup.options.window = 0;  // it hides nothing
  if (options.key_mask.defined()) {
    if (options.key_mask.sizes() != at::IntArrayRef({rows, sequence})) {
      throw InternalError(fmt::format("key_mask {} is not [rows, sequence] of {} rows of {} tokens",
                                      c10::str(options.key_mask.sizes()), rows, sequence));
    }
    setup.options.key_mask = options.key_mask.to(at::kBool).contiguous();
  }
  setup.repeatable = pass.repeatable;
  setup.drops = drops(options.dropout, pass);
  if (setup.drops) {
    setup.dropout = dropout_grid(pass, options.site, options.dropout, {options.heads, sequence, sequence});
    // Blocks say where their queries are in the row, on a rank that has some of its positions as well.
    setup.dropout.first_position = 0;
    setup.dropout.second_piece = kMaxPositions;
    setup.dropout.jump = 0;
  }
  return setup;
}

HeadsSetup heads_setup(const at::Tensor& qkv, const AttentionOptions& options, const Pass& pass) {
  check_heads(options);
  if (qkv.dim() != 3 || qkv.size(2) != (options.heads + 2 * options.kv_heads) * options.head_size) {
    throw InternalError(
        fmt::format("attention of {} heads and {} key/value heads of size {}: qkv must be [rows, sequence, (heads + 2 "
                    "kv_heads) * head_size], not {}",
                    options.heads, options.kv_heads, options.head_size, c10::str(qkv.sizes())));
  }
  HeadsSetup setup = blocks_setup(qkv.size(0), qkv.size(1), options, pass);
  if (options.document_starts.defined()) {
    if (options.document_starts.sizes() != qkv.sizes().slice(0, 2)) {
      throw InternalError(fmt::format("document_starts {} is not [rows, sequence] of qkv {}",
                                      c10::str(options.document_starts.sizes()), c10::str(qkv.sizes())));
    }
    setup.options.document_starts = options.document_starts.contiguous();
    if (options.document_rows.defined()) setup.options.document_rows = options.document_rows.contiguous();
    setup.options.unpadded = options.unpadded;
  }
  const at::ScalarType dtype = kernels::compute_dtype(qkv);
  if (options.rotary.cos.defined() || options.rotary.sin.defined()) {
    check_rotary(qkv, options);
    setup.options.rotary = {options.rotary.cos.to(dtype).contiguous(), options.rotary.sin.to(dtype).contiguous()};
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
