// Norms of heads of OperationPrices: queries, then keys are copied out, normalised as rows of one head each and copied
// back (ops/head_norm/head_norm.cpp).
#include <algorithm>
#include <array>
#include <cmath>

#include "orthant/base/index.h"
#include "orthant/graph/heads.h"
#include "orthant/plan/estimate/operation_price.h"

namespace orthant {
namespace {

constexpr double kCopyMoves = 2;
// Wide matrices that ATen's formulas hold beside the operands of a norm's backward.
constexpr double kPlainBackMatrices = 5;

}  // namespace

std::array<double, 2> OperationPrices::normed_heads(const Operation& op, int qkv) const {
  const bool cut = !program_.values[to_index(qkv)].at.dims.back().cuts.empty();
  const Heads heads = orthant::local_heads(op.attributes, cut ? sizes_.degree : 1);
  return {static_cast<double>(heads.heads), static_cast<double>(heads.kv_heads)};
}

void OperationPrices::head_norm(const Operation& op) {
  const double rows = tokens(op.in[0]), size = static_cast<double>(op.attributes.integer("head_size"));
  value(op.out[0]) = take(op.out[0]);
  const Held statistics = op.out[1] < 0 ? Held() : take(op.out[1]);
  if (op.out[1] >= 0) value(op.out[1]) = statistics;
  for (const double heads : normed_heads(op, op.in[0])) {
    const double count = rows * heads * size;
    const Held x = narrow_values(count);
    const Held numbers = memory.take(rows * heads * wide_);
    const Held y = normed(x, count, size, -1, /*weights=*/1);
    move(2 * kCopyMoves * count);
  }
  move(kCopyMoves * rows * normed_heads(op, op.in[0])[1] * size);
}

void OperationPrices::head_norm_back(const Operation& op) {
  const double rows = tokens(op.in[0]), size = static_cast<double>(op.attributes.integer("head_size"));
  const bool inputs = op.out[0] >= 0, weights = op.attributes.flag("weights");
  if (inputs) value(op.out[0]) = take(op.out[0]);
  for (const double heads : normed_heads(op, op.in[1])) {
    const double count = rows * heads * size;
    const Held x = narrow_values(count), numbers = memory.take(rows * heads * wide_);
    move((inputs ? 3 : 2) * kCopyMoves * count);
    norm_rows_back(x, narrow_values(count), {rows * heads, size}, inputs, weights);
  }
  if (inputs) move(kCopyMoves * rows * normed_heads(op, op.in[1])[1] * size);
}

void OperationPrices::norm_rows_back(const Held& x, Held g, const Weight& matrix, bool inputs, bool weights) {
  const double count = matrix.out * matrix.in;
  if (serves_norm(matrix.in)) {
    move((inputs ? 3 : 2) * count);
    const Held gx = inputs ? narrow_values(count) : Held();
    if (weights) memory.for_a_while(std::min(kNormBlocks, matrix.out) * matrix.in * wide_);
    return;
  }
  if (inputs) move(kPlainNormBack.narrow * count, kPlainNormBack.wide * count);
  Held wide_x = widened(x, count);
  Held wide_weight = on_host_ && narrow() && inputs ? memory.take(matrix.in * wide_) : Held();
  const double blocks = std::ceil(matrix.out / kRowBlock);
  Held gx, sums;
  {
    const Held wide_g = widened(g, count);
    if (!on_host_) memory.for_a_while(kPlainBackMatrices * count * wide_);
    if (inputs) gx = memory.take(count * wide_);
    if (weights) sums = memory.take(blocks * matrix.in * wide_);
  }
  if (inputs) gx = narrowed(std::move(gx), count);
  wide_x.reset();
  wide_weight.reset();
  g.reset();
  if (on_host_ && weights) memory.for_a_while(column_sums(blocks, matrix.in));
}

}  // namespace orthant
