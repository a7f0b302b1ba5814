// Calls of the CPU's kernels, on ATen's threads: a task is a row and a key/value head of it, whose blocks are computed
// in order. Internal to this layer.
#pragma once

#include <ATen/ATen.h>

#include <cmath>

#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/attention/attention_blocks.h"
#include "orthant/ops/attention/cpu_kernels.h"

namespace orthant::nn {

// One block per row of `sequence` tokens that attend to each other.
inline std::vector<HeadsBlock> whole_rows(std::int64_t rows, std::int64_t sequence) {
  std::vector<HeadsBlock> blocks;
  for (std::int64_t row = 0; row < rows; ++row) {
    blocks.push_back({row, row * sequence, sequence, row * sequence, sequence, 0, 0});
  }
  return blocks;
}

// One block per document of packed rows, or per row.
inline std::vector<HeadsBlock> blocks_of(const HeadsSetup& setup, std::int64_t rows, std::int64_t sequence) {
  if (!setup.options.document_starts.defined()) return whole_rows(rows, sequence);
  std::vector<HeadsBlock> blocks;
  const at::Tensor& own_rows = setup.options.document_rows;
  const auto documents = document_ranges(setup.options.document_starts);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const Range document : documents[static_cast<std::size_t>(row)]) {
      const std::int64_t token = row * sequence + document.begin, size = document.size();
      blocks.push_back({row, token, size, token, size, document.begin, document.begin});
      if (own_rows.defined()) {
        blocks.back() = {own_rows.const_data_ptr<std::int64_t>()[token], token, size, token, size, 0, 0};
      }
    }
  }
  return blocks;
}

template <class T>
class FusedBlocks {
 public:
  // Blocks of a row are neighbours in the list.
  FusedBlocks(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup)
      : setup_(setup), blocks_(blocks) {
    const AttentionOptions& options = setup.options;
    group_.heads = options.heads / options.kv_heads;
    group_.head_size = options.head_size;
    group_.causal = options.causal;
    group_.window = options.window;
    group_.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(options.head_size)));
    if (setup.drops) {
      group_.dropout.factors = kernels::kernels<kernels::DropoutKernels<T>>().factors;
      group_.dropout.draw = setup.dropout.draw;
      group_.dropout.head_step = kMaxPositions * kMaxChannels;
      group_.dropout.query_step = kMaxChannels;
    }
    group_.q = heads.q.mutable_data_ptr<T>();
    group_.k = heads.k.mutable_data_ptr<T>();
    group_.v = heads.v.mutable_data_ptr<T>();
    group_.q_stride = heads.q.stride(0);
    group_.kv_stride = heads.k.stride(0);
    options_ = heads.q.options();
  }

  // Tables by which the kernels rotate: blocks have the queries and keys of the same tokens, positions from 0 on.
  void rotate_by(const RotaryTable& table) {
    group_.cos = table.cos.const_data_ptr<T>();
    group_.sin = table.sin.const_data_ptr<T>();
  }

  // lse [rows, heads, sequence], where each query is in one block, or [heads, query tokens], where results join what
  // is there.
  void give(const at::Tensor& out, const at::Tensor& lse) {
    group_.out = out.mutable_data_ptr<T>();
    group_.out_stride = out.stride(-2);
    group_.lse = lse.mutable_data_ptr<T>();
    group_.lse_stride = lse.size(-1);
    group_.joins = lse.dim() == 2;
    lse_row_ = group_.joins ? 0 : (lse.size(1) - 1) * lse.size(2);
  }

  void forward() const {
    const auto kernel = kernels::kernels<kernels::AttentionKernels<T>>().forward;
    for_groups([&](const HeadsBlock&, std::int64_t, const kernels::AttentionGroup<T>& group) { kernel(group); });
  }

  // d_out lies as out, delta as lse; an undefined delta is computed.
  void backward(const at::Tensor& d_out, const at::Tensor& delta, const HeadsMatrices& gradients) const {
    const auto kernel = kernels::kernels<kernels::AttentionKernels<T>>().backward;
    const T* const d_out_first = d_out.const_data_ptr<T>();
    const T* const delta_first = delta.defined() ? delta.const_data_ptr<T>() : nullptr;
    const std::int64_t size = setup_.options.head_size;
    for_groups([&](const HeadsBlock& block, std::int64_t kv_head, const kernels::AttentionGroup<T>& group) {
      kernels::AttentionGradients<T> here;
      here.d_out = d_out_first + (group.out - group_.out);
      here.delta = delta_first == nullptr ? nullptr : delta_first + (group.lse - group_.lse);
      here.q_stride = gradients.q.stride(0);
      here.kv_stride = gradients.k.stride(0);
      here.dq = gradients.q.mutable_data_ptr<T>() + block.query * here.q_stride + kv_head * group.heads * size;
      here.dk = gradients.k.mutable_data_ptr<T>() + block.key * here.kv_stride + kv_head * size;
      here.dv = gradients.v.mutable_data_ptr<T>() + block.key * here.kv_stride + kv_head * size;
      kernel(group, here);
    });
  }

 private:
  kernels::AttentionGroup<T> at(const HeadsBlock& block, std::int64_t kv_head, T* scratch) const {
    const AttentionOptions& options = setup_.options;
    const std::int64_t head = kv_head * group_.heads, size = options.head_size;
    kernels::AttentionGroup<T> here = group_;
    here.queries = block.queries;
    here.keys = block.keys;
    here.shift = block.query_position - block.key_position;
    here.q += block.query * group_.q_stride + head * size;
    here.k += block.key * group_.kv_stride + kv_head * size;
    here.v += block.key * group_.kv_stride + kv_head * size;
    here.out += block.query * group_.out_stride + head * size;
    here.lse += (options.document_rows.defined() ? 0 : block.row) * lse_row_ + head * group_.lse_stride + block.query;
    if (options.key_mask.defined()) {
      // Of unpadded rows it lies as the tokens do.
      const std::int64_t at =
          options.document_rows.defined() ? block.key : block.row * options.key_mask.size(1) + block.key_position;
      here.key_mask = options.key_mask.const_data_ptr<bool>() + at;
    }
    if (setup_.drops) {
      here.dropout.first = setup_.element(block.row, head) +
                           static_cast<std::uint64_t>(block.query_position) * kMaxChannels +
                           static_cast<std::uint64_t>(block.key_position);
    }
    here.scratch = scratch;
    return here;
  }

  // body(block, kv_head, group) for every block and key/value head.
  template <class Body>
  void for_groups(const Body& body) const {
    std::int64_t elements = 0;
    std::vector<std::size_t> firsts;  // blocks that begin a row
    const auto needs = kernels::kernels<kernels::AttentionKernels<T>>().scratch_elements;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      elements = std::max(elements, needs(blocks_[i].queries, blocks_[i].keys, group_.head_size));
      if (i == 0 || blocks_[i].row != blocks_[i - 1].row) firsts.push_back(i);
    }
    firsts.push_back(blocks_.size());
    const std::int64_t kv_heads = setup_.options.kv_heads;
    at::parallel_for(0, static_cast<std::int64_t>(firsts.size() - 1) * kv_heads, 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       const at::Tensor scratch = at::empty({elements}, options_);
                       for (std::int64_t index = begin; index < end; ++index) {
                         const auto row = static_cast<std::size_t>(index / kv_heads);
                         for (std::size_t i = firsts[row]; i < firsts[row + 1]; ++i) {
                           const std::int64_t kv_head = index % kv_heads;
                           body(blocks_[i], kv_head, at(blocks_[i], kv_head, scratch.mutable_data_ptr<T>()));
                         }
                       }
                     });
  }

  const HeadsSetup& setup_;
  const std::vector<HeadsBlock>& blocks_;
  kernels::AttentionGroup<T> group_;  // of the first token and head of every matrix
  std::int64_t lse_row_ = 0;
  at::TensorOptions options_;
};

}  // namespace orthant::nn
