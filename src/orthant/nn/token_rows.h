// Note [Unpadded rows]: a microbatch of texts of different lengths can run without its padding. Fields per token are
// then [1, tokens]: the tokens of all rows side by side, and behind them some that belong to no row, so that few sizes
// occur. Whatever depends on a token's row or position reads TokenRows: attention is a block per row, positions count
// from the row's first token, dropout draws what it draws for the padded row. Values per row stay [rows, channels].
//
// Note [Steps of a generation]: a step of a generation is such a microbatch: a row is the next tokens of one sequence,
// which may begin at any position. What attention needs of the tokens before them lies in a cache (nn/key_cache.h), and
// only the tokens whose logits are wanted are picked for the head.
#pragma once

#include <ATen/core/Tensor.h>

namespace orthant::nn {

// All int64, where the fields are. Tokens behind those of the rows are a row more.
struct TokenRows {
  at::Tensor row;       // [1, tokens]: of the microbatch
  at::Tensor position;  // [1, tokens]: in its row
  at::Tensor starts;    // [1, tokens]: the number of the row's first token
  // Of each row its first token; of a generation those whose logits are wanted: [picked].
  at::Tensor picked;
  at::Tensor firsts = {};  // [rows + 1]: of each row its first token, then the first one of no row; not of a generation
  std::int64_t longest = 0;  // row, at most: the same for all microbatches of one shape; 0 of a generation
};

}  // namespace orthant::nn
