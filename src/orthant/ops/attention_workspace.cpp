#include "orthant/ops/attention_workspace.h"

#include <algorithm>

namespace orthant {
namespace {

constexpr std::int64_t kBlockBytes = 64 * 1024;  // of one block's scores
constexpr std::int64_t kAlignedBytes = 64;

std::int64_t round_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

}  // namespace

AttentionWorkspace attention_workspace(std::int64_t queries, std::int64_t keys, std::int64_t head_size,
                                       std::int64_t element_bytes, std::int64_t vector_bytes) {
  const std::int64_t tile = attention_tile_rows(vector_bytes), lanes = vector_bytes / element_bytes;
  const std::int64_t rows = round_up(keys, tile), query_rows = round_up(queries, tile);
  AttentionWorkspace space;
  space.keys_stride = round_up(rows, lanes);
  space.depth_stride = round_up(head_size, lanes);
  const std::int64_t fitting = kBlockBytes / (space.keys_stride * element_bytes);
  space.block_rows = std::min(std::max(fitting / tile * tile, tile), query_rows);
  const auto take = [&](std::int64_t count) {
    const std::int64_t place = space.elements;
    space.elements += round_up(count, kAlignedBytes / element_bytes);
    return place;
  };
  const std::int64_t by_depth = head_size * space.keys_stride, by_key = rows * space.depth_stride;
  space.bias = take(space.keys_stride);
  space.factors = take(space.keys_stride);
  space.keys_by_depth = take(by_depth);
  space.values_by_depth = take(std::max(by_depth, by_key));
  for (std::int64_t* matrix : {&space.keys, &space.dk, &space.dv}) *matrix = take(by_key);
  for (std::int64_t* matrix : {&space.queries, &space.d_outputs, &space.block_output}) {
    *matrix = take(space.block_rows * space.depth_stride);
  }
  for (std::int64_t* matrix : {&space.scores, &space.d_scores}) *matrix = take(space.block_rows * space.keys_stride);
  return space;
}

}  // namespace orthant
