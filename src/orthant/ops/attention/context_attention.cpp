#include "orthant/ops/attention/context_attention.h"

#include <ATen/ATen.h>

#include "orthant/ops/attention/context_blocks.h"

namespace orthant::nn {

RowPieces::RowPieces(const OwnPositions& own, std::array<bool, 2> taken) {
  for (std::size_t i = 0; i < own.pieces.size(); ++i) {
    if (!taken.at(i) || own.pieces.at(i).empty()) continue;
    pieces_.push_back(own.pieces.at(i));
    size_ += own.pieces.at(i).size();
  }
}

std::vector<HeadsBlock> blocks_between(const RowPieces& queries, const RowPieces& keys, std::int64_t rows,
                                       const KeyRule& rule) {
  std::vector<HeadsBlock> blocks;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t query = row * queries.size();
    for (const Range q : queries.pieces()) {
      std::int64_t key = row * keys.size();
      for (const Range k : keys.pieces()) {
        if (rule.sees(q, k)) blocks.push_back({row, query, q.size(), key, k.size(), q.begin, k.begin});
        key += k.size();
      }
      query += q.size();
    }
  }
  return blocks;
}

at::Tensor keys_and_values(const at::Tensor& qkv, const AttentionOptions& options) {
  return qkv.narrow(1, options.heads * options.head_size, 2 * options.kv_heads * options.head_size);
}

HeadsMatrices with_keys(const at::Tensor& q, const at::Tensor& keys_values) {
  const std::int64_t width = keys_values.size(1) / 2;
  return {q, keys_values.narrow(1, 0, width), keys_values.narrow(1, width, width)};
}

OwnGradients::OwnGradients(const at::Tensor& qkv, const AttentionOptions& options, at::ScalarType dtype)
    : q(at::zeros({qkv.size(0), options.heads * options.head_size}, qkv.options().dtype(dtype))),
      keys_values(at::zeros({qkv.size(0), 2 * options.kv_heads * options.head_size}, qkv.options().dtype(dtype))) {}

at::Tensor OwnGradients::joined(at::ScalarType dtype) const {
  return at::cat({q.to(dtype), keys_values.to(dtype)}, 1);
}

ContextOutput context_forward(const at::Tensor& qkv, const AttentionOptions& options, const Pass& pass) {
  if (pass.context->sharing().way == ContextWay::all_to_all) return all_to_all_forward(qkv, options, pass);
  const HeadsSetup setup = blocks_setup(pass.rows, pass.whole_sequence(), options, pass);
  return pass.context->sharing().way == ContextWay::ring ? ring_forward(qkv, setup, pass)
                                                         : gather_forward(qkv, setup, pass);
}

at::Tensor context_backward(const at::Tensor& qkv, const ContextOutput& output, const at::Tensor& d_out,
                            const AttentionOptions& options, const Pass& pass) {
  if (pass.context->sharing().way == ContextWay::all_to_all) return all_to_all_backward(output, d_out, options, pass);
  const HeadsSetup setup = blocks_setup(pass.rows, pass.whole_sequence(), options, pass);
  return pass.context->sharing().way == ContextWay::ring ? ring_backward(qkv, output, d_out, setup, pass)
                                                         : gather_backward(qkv, output, d_out, setup, pass);
}

}  // namespace orthant::nn
