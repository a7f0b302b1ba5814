// Values of all tokens or channels from those that each tensor-parallel rank holds: what poolers, whole logits and
// tests read. Without an axis each gives what one rank would read.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// x [..., own channels], the tp axis's part of `channels` -> [..., channels] on every rank. Gathers over tp. Without an
// axis x itself.
at::Tensor whole_channels(const at::Tensor& x, std::int64_t channels, const Pass& pass);

// x [own tokens, channels] -> [rows, sequence, channels] on every rank. Gathers over tp. Where the pass does not cut
// tokens x itself.
at::Tensor whole_tokens(const at::Tensor& x, const Pass& pass);

// Of a batch field [rows, whole sequence], or of a table [whole sequence, ...]: what belongs to the positions that this
// rank has of each row. The tensor itself where the pass has whole rows. Local.
at::Tensor own_columns(const at::Tensor& field, const Pass& pass);
at::Tensor own_table_rows(const at::Tensor& table, const Pass& pass);

// Along dim 1 of whole rows: what belongs to the positions of a rank, and the way back. Local.
at::Tensor part_of_rows(const at::Tensor& whole, const OwnPositions& own);
void place_in_rows(const at::Tensor& whole, const OwnPositions& own, const at::Tensor& part);

// x [rows, own positions, ...] -> [rows, whole sequence, ...] on every rank. Gathers over cp. x itself where the pass
// has whole rows.
at::Tensor whole_sequences(const at::Tensor& x, const Pass& pass);

// Of matrices. The first token of each row [rows, channels] that this rank holds, zeros for rows
// whose first token is elsewhere; and the gradient of the rank's tokens from that of their sum. Local.
at::Tensor held_first_tokens(const at::Tensor& x, const Pass& pass);
at::Tensor first_tokens_gradient(const at::Tensor& gy, const Pass& pass);
// [n, own channels] -> [n, channels]. Equal parts travel as they lie; others as channels, of which a gather takes any
// number. Collective over tp.
at::Tensor gather_channels(const at::Tensor& own, std::int64_t channels, TensorAxis& axis);

}  // namespace orthant::nn
