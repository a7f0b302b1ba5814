// Sums of table rows: token, position and segment embeddings. A table may be cut along its entries over tp: a rank then
// has a summand of the sum. Local.
#pragma once

#include <vector>

#include "orthant/nn/pass.h"

namespace orthant::nn {

struct Lookup {
  at::Tensor ids;              // int64 [rows, sequence], or [sequence] for all rows alike
  Parameter* table = nullptr;  // [entries, hidden], or the entries from cut.first on that this rank holds
  std::int64_t entries = 0;    // of the whole table; 0: as many as it holds
};

// sum over lookups of table[ids] -> [tokens, hidden], of all tokens where a table is cut, else of the rank's own; at
// least one lookup has rows. DataError for an id outside of its table on the CPU, on every rank; a device is not waited
// for.
at::Tensor table_sum(const std::vector<Lookup>& lookups, const Pass& pass);
// The ids whose rows' gradients a rank adds: of all tokens where the table is cut, else of its own.
at::Tensor looked_up_ids(const Lookup& lookup, const Pass& pass);
// table.gradient[ids[t]] += gy[t].
void add_table_gradient(Parameter& table, const at::Tensor& ids, const at::Tensor& gy);

}  // namespace orthant::nn
