// Scratch memory of a host's attention kernels for one group of heads, as matrices in one piece: the kernels lay it out
// by this, the runtime takes it, and the planner counts it.
#pragma once

#include <cstdint>

namespace orthant {

// Places of matrices count elements. Rows are whole vectors, and matrices have whole tiles of rows.
struct AttentionWorkspace {
  std::int64_t keys_stride = 0;      // of a row over keys
  std::int64_t depth_stride = 0;     // of a row over a head
  std::int64_t block_rows = 0;       // queries taken at a time
  std::int64_t bias = 0;             // [keys] 0 or -infinity
  std::int64_t factors = 0;          // [keys] of one query's dropout
  std::int64_t keys_by_depth = 0;    // [head_size, keys]
  std::int64_t values_by_depth = 0;  // backward; forward keeps values [keys, head_size] here
  std::int64_t keys = 0;             // [keys, head_size], as the two below; backward
  std::int64_t dk = 0;
  std::int64_t dv = 0;
  std::int64_t queries = 0;  // [block_rows, head_size], as the two below
  std::int64_t d_outputs = 0;
  std::int64_t block_output = 0;  // output of the block, or its dq
  std::int64_t scores = 0;        // [block_rows, keys]
  std::int64_t d_scores = 0;
  std::int64_t elements = 0;  // of all
};

// Rows of a tile of products, for vectors of so many bytes.
constexpr std::int64_t attention_tile_rows(std::int64_t vector_bytes) {
  return vector_bytes == 64 ? 8 : vector_bytes == 32 ? 6 : 4;
}

AttentionWorkspace attention_workspace(std::int64_t queries, std::int64_t keys, std::int64_t head_size,
                                       std::int64_t element_bytes, std::int64_t vector_bytes);

}  // namespace orthant
