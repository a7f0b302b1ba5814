// Losses of OperationPrices: of logits that are there, and of a product that makes them in chunks.
#include <algorithm>

#include "orthant/plan/estimate/operation_price.h"

namespace orthant {
namespace {

// Of each logit: its loss, and its gradient in place; of the compute dtype, and of the wide one by ATen's formulas.
constexpr double kLossMoves = 1, kWideLossMoves = 4;
constexpr double kGradientMoves = 2, kWideGradientMoves = 10;

bool is_cut(const Operation& op) {
  return op.attributes.flag("cut");
}

}  // namespace

void OperationPrices::move_logits(double narrow_moves, double wide_moves, double logits) {
  move(narrow_moves * logits, kernels_ ? 0 : wide_moves * logits);
}

void OperationPrices::cross_entropy(const Operation& op) {
  const double logits = elements(op.in[0]), targets = tokens(op.in[0]);
  if (op.out[1] >= 0) value(op.out[1]) = memory.take(targets * loss_number());
  const Held chosen = memory.take(targets * loss_number());
  move_logits(kLossMoves, kWideLossMoves, logits);
  if (!kernels_ && (narrow() || !on_host_)) memory.for_a_while(logits * wide_);
  if (is_cut(op)) memory.for_a_while(targets * loss_number());
}

void OperationPrices::cross_entropy_back(const Operation& op) {
  const double logits = elements(op.in[1]);
  move_logits(kGradientMoves, kWideGradientMoves, logits);
  if (kernels_ || !narrow()) {
    value(op.out[0]) = value(op.in[1]);  // in their place
    return;
  }
  const Held wide = memory.take(logits * wide_);
  value(op.out[0]) = narrow_values(logits);
}

double OperationPrices::chunk_rows(const Operation& op) const {
  const auto rows = static_cast<double>(op.attributes.integer("chunk_rows"));
  const auto all = static_cast<double>(sizes_.tokens());
  return rows > 0 ? std::min(rows, all) : all;
}

// Chunks are alike but for the last: the first shows the worst of them. To its logits.
Held OperationPrices::loss_chunk(const Operation& op, int x) {
  const Weight w = weight(op);
  const double all = tokens(x), rows = chunk_rows(op);
  Held logits = product(rows, w.in, w.out);
  if (op.parameters.size() > 1) move(kBiasMoves * all * w.out);
  move_logits(kLossMoves, kWideLossMoves, all * w.out);
  const Held numbers = memory.take((is_cut(op) ? 3 : 2) * rows * loss_number());
  if (!kernels_ && (narrow() || !on_host_)) memory.for_a_while(rows * w.out * wide_);
  return logits;
}

// The logits become their gradient, and what is wanted is made of it. To the gradient of x. What is moved is counted
// for all chunks.
Held OperationPrices::loss_chunk_back(const Operation& op, int x, Held logits, bool inputs, bool weights) {
  const Weight w = weight(op);
  const double all = tokens(x), rows = chunk_rows(op);
  move_logits(kGradientMoves, kWideGradientMoves, all * w.out);
  if (narrow() && !kernels_) {
    const Held wide = memory.take(rows * w.out * wide_);
    logits = narrow_values(rows * w.out);
  }
  Held gx = inputs && rows < all ? narrow_values(all * w.in) : Held();  // the chunks' together
  if (gx) move(2 * all * w.in);
  if (inputs) {
    const Held chunk = product(rows, w.out, w.in);
    if (rows == all) gx = chunk;
  }
  if (weights) {
    if (op.parameters.size() > 1) {
      move(all * w.out);
      if (on_host_ && narrow()) memory.for_a_while(rows * w.out * wide_);
    }
    memory.for_a_while(weight_bytes(rows, w));
  }
  return gx;
}

void OperationPrices::head_loss(const Operation& op) {
  loss_chunk(op, op.in[0]);
  if (op.out[1] >= 0) value(op.out[1]) = memory.take(tokens(op.in[0]) * loss_number());
}

void OperationPrices::head_loss_gradients(const Operation& op) {
  Held logits = loss_chunk(op, op.in[0]);
  const Held numbers = memory.take(chunk_rows(op) * loss_number());
  const int gx = op.out.back();
  const Held made = loss_chunk_back(op, op.in[0], std::move(logits), gx >= 0, true);
  if (gx >= 0) value(gx) = made;
}

void OperationPrices::head_loss_back(const Operation& op) {
  const Weight w = weight(op);
  if (op.parameters.size() > 1) move(kBiasMoves * tokens(op.in[1]) * w.out);
  Held logits = product(chunk_rows(op), w.in, w.out);
  const Held made = loss_chunk_back(op, op.in[1], std::move(logits), op.out[0] >= 0, op.attributes.flag("weights"));
  if (op.out[0] >= 0) value(op.out[0]) = made;
}

}  // namespace orthant
