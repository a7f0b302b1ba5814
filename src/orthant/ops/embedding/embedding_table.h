// Rows of embedding tables, twice: `fused` runs the kernels (float32 and float64 on the CPU), `plain`
// is made of ATen's functions, serves everything else and is the fused one's oracle. Local.
//
// Note [Cut tables]: of a table that is cut over tp a rank holds a range of entries, and the ranks' sums are added up.
// Each token's row of a whole table must come in once: the rank that holds the token's row of the first cut table adds
// it. So each rank makes one pass over its part of the sum, all ranks work, and with one cut table each token's sum is
// made on one rank, in the order and with the bits of one rank.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// ids are contiguous int64 of any shape with `tokens` elements, or with a divisor of it: then they repeat. Gradients
// are summed in the order of tokens.
struct TableRows {
  at::Tensor ids;
  at::Tensor table;    // [entries, width]
  TensorCut cut = {};  // of the table: ids count from its first entry on, and entries held elsewhere are left out
  std::int64_t all_entries = 0;  // of the whole table; 0: as many as are held
};

namespace plain {
at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens);
// gradient.table[ids[t]] += gy[t] for gy [tokens, width].
void add_table_rows(const TableRows& gradient, const at::Tensor& gy);
}  // namespace plain

// Tables, gy and gradient are contiguous and of one dtype.
namespace fused {
at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens);
void add_table_rows(const TableRows& gradient, const at::Tensor& gy);
}  // namespace fused

// On a CUDA device, where the functions before them say so.
namespace device {
bool serves_lookups(const std::vector<TableRows>& lookups);
at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens);
bool serves_rows(const TableRows& gradient, const at::Tensor& gy);
void add_table_rows(const TableRows& gradient, const at::Tensor& gy);
}  // namespace device

}  // namespace orthant::nn
