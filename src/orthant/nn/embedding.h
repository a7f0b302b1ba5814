// Sums of table rows: token, position and segment embeddings. Local.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

struct Lookup {
  at::Tensor ids;              // int64 [rows, sequence], or [sequence] for all rows alike
  Parameter* table = nullptr;  // [entries, hidden]
};

// sum over lookups of table[ids] -> [rows, sequence, hidden]; at least one lookup has rows. Keeps the ids. DataError
// for an id outside of its table on the CPU; a device is not waited for.
at::Tensor embedding(const std::vector<Lookup>& lookups, Pass& pass);

}  // namespace orthant::nn
