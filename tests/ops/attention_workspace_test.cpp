// Scratch of attention's kernels: matrices lie side by side, aligned, with room for whole tiles.
#include "orthant/ops/attention_workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace orthant {
namespace attention_workspace_test {

// The end of each matrix by its rows and strides, and where the next one begins.
std::vector<std::pair<std::int64_t, std::int64_t>> ends(const AttentionWorkspace& at, std::int64_t rows,
                                                        std::int64_t head_size) {
  const std::int64_t by_depth = head_size * at.keys_stride, by_key = rows * at.depth_stride;
  const std::int64_t block = at.block_rows * at.depth_stride, scores = at.block_rows * at.keys_stride;
  return {{at.bias + at.keys_stride, at.factors},
          {at.factors + at.keys_stride, at.keys_by_depth},
          {at.keys_by_depth + by_depth, at.values_by_depth},
          {at.values_by_depth + std::max(by_depth, by_key), at.keys},
          {at.keys + by_key, at.dk},
          {at.dk + by_key, at.dv},
          {at.dv + by_key, at.queries},
          {at.queries + block, at.d_outputs},
          {at.d_outputs + block, at.block_output},
          {at.block_output + block, at.scores},
          {at.scores + scores, at.d_scores},
          {at.d_scores + scores, at.elements}};
}

TEST(AttentionWorkspace, HoldsItsMatricesSideBySide) {
  for (const std::int64_t vector_bytes : {16, 32, 64}) {
    for (const std::int64_t element_bytes : {4, 8}) {
      for (const std::int64_t sequence : {1, 7, 64, 100, 4096}) {
        for (const std::int64_t head_size : {2, 10, 64, 128}) {
          const auto at = attention_workspace(sequence, sequence, head_size, element_bytes, vector_bytes);
          const std::int64_t tile = attention_tile_rows(vector_bytes), lanes = vector_bytes / element_bytes;
          const std::int64_t rows = (sequence + tile - 1) / tile * tile;
          EXPECT_GE(at.keys_stride, rows);
          EXPECT_EQ(at.keys_stride % lanes, 0);
          EXPECT_GE(at.depth_stride, head_size);
          EXPECT_EQ(at.depth_stride % lanes, 0);
          EXPECT_EQ(at.block_rows % tile, 0);
          EXPECT_GE(at.block_rows, tile);
          EXPECT_LE(at.block_rows, rows);
          for (const auto& [end, next] : ends(at, rows, head_size)) {
            EXPECT_LE(end, next);
            EXPECT_LT(next - end, 64 / element_bytes);
            EXPECT_EQ(next * element_bytes % 64, 0);
          }
        }
      }
    }
  }
}

}  // namespace attention_workspace_test
}  // namespace orthant
