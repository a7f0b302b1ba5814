#include "orthant/ops/attention/context_attention.h"

#include <ATen/ATen.h>

#include "orthant/base/error.h"
#include "orthant/ops/attention/context_blocks.h"

namespace orthant::nn {

RowPieces::RowPieces(const OwnPositions& own, std::array<bool, 2> taken) {
  for (std::size_t i = 0; i < own.pieces.size(); ++i) {
    if (!taken.at(i) || own.pieces.at(i).empty()) continue;
    pieces_.push_back(own.pieces.at(i));
    size_ += own.pieces.at(i).size();
  }
}

Sight::Sight(const AttentionOptions& options, const Pass& pass) : rule_(key_rule(options)) {
  const std::int64_t sequence = pass.whole_sequence();
  documents_.assign(static_cast<std::size_t>(pass.rows), {Range{0, sequence}});
  if (!options.document_starts.defined()) return;
  documents_ = document_ranges(options.document_starts.cpu().contiguous());
}

std::vector<HeadsBlock> Sight::blocks(const RowPieces& queries, const RowPieces& keys) const {
  std::vector<HeadsBlock> blocks;
  for (std::size_t r = 0; r < documents_.size(); ++r) {
    const auto row = static_cast<std::int64_t>(r);
    std::int64_t query = row * queries.size();
    for (const Range q_piece : queries.pieces()) {
      std::int64_t key = row * keys.size();
      for (const Range k_piece : keys.pieces()) {
        for (const Range document : documents_[r]) {
          const Range q = common(q_piece, document), k = common(k_piece, document);
          if (!rule_.sees(q, k)) continue;
          blocks.push_back({row, query + q.begin - q_piece.begin, q.size(), key + k.begin - k_piece.begin, k.size(),
                            q.begin, k.begin});
        }
        key += k_piece.size();
      }
      query += q_piece.size();
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
  if (pass.context == nullptr) throw InternalError("attention over cp in a pass without a context axis");
  const Sight sight(options, pass);
  const ContextWay way = pass.context->sharing().way;
  if (way == ContextWay::all_to_all) return all_to_all_forward(qkv, options, sight, pass);
  const HeadsSetup setup = blocks_setup(pass.rows, pass.whole_sequence(), options, pass);
  return way == ContextWay::ring ? ring_forward(qkv, setup, sight, pass) : gather_forward(qkv, setup, sight, pass);
}

at::Tensor context_backward(const at::Tensor& qkv, const ContextOutput& output, const at::Tensor& d_out,
                            const AttentionOptions& options, const Pass& pass) {
  const Sight sight(options, pass);
  const ContextWay way = pass.context->sharing().way;
  if (way == ContextWay::all_to_all) return all_to_all_backward(output, d_out, options, sight, pass);
  const HeadsSetup setup = blocks_setup(pass.rows, pass.whole_sequence(), options, pass);
  return way == ContextWay::ring ? ring_backward(qkv, output, d_out, setup, sight, pass)
                                 : gather_backward(qkv, output, d_out, setup, sight, pass);
}

}  // namespace orthant::nn
