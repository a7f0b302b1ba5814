// How a row of a norm lies in the registers of a CUDA device: warps that share it, vectors that a lane of them holds.
// Local.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace orthant::nn::device {

struct RowShape {
  int vectors = 1;
  int warps = 1;

  // 4 warps or those of a row, whichever is more.
  int threads() const { return warps > 4 ? 32 * warps : 128; }
  // Of a block at a time.
  int rows() const { return threads() / (32 * warps); }
};

// As few warps as hold `width` elements with at most `most_vectors` vectors of `lane` elements each; a power of two.
inline RowShape row_shape(std::int64_t width, std::int64_t lane, std::int64_t most_vectors) {
  const std::int64_t needed = std::max<std::int64_t>((width + 32 * lane - 1) / (32 * lane), 1);
  const auto warps =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>((needed + most_vectors - 1) / most_vectors)));
  return {static_cast<int>((needed + warps - 1) / warps), static_cast<int>(warps)};
}

// To how many blocks the rows of a backward are handed, neighbours to each (own_rows() in cuda/prelude.cu): as many as
// the number of rows alone says, so that sums over them do not depend on the card. A block has `slots` rows at a time.
inline std::int64_t row_blocks(std::int64_t rows, std::int64_t slots, std::int64_t most_blocks) {
  return std::min((rows + slots - 1) / slots, most_blocks);
}

}  // namespace orthant::nn::device
