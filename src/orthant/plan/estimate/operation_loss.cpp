// Losses of OperationPrices: of logits that are there, and of a product that makes them in chunks.
#include <algorithm>
#include <cmath>
#include <utility>

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
  const Held labels = own_tokens(op.in[1]);
  if (op.out[1] >= 0) value(op.out[1]) = memory.take(targets * loss_number());
  const Held chosen = memory.take(targets * loss_number());
  move_logits(kLossMoves, kWideLossMoves, logits);
  const Held wide = !kernels_ && (narrow() || !on_host_) ? memory.take(logits * wide_) : Held();
  if (is_cut(op)) memory.for_a_while(joined_bytes(targets));
  if (on_host_) value(op.out[0]) = take(op.out[0]);
}

// The highest logit of each target over all ranks and, on a host, which of them are infinite, and infinity.
double OperationPrices::joined_bytes(double targets) const {
  return targets * loss_number() + (on_host_ ? targets + bytes_of(DType::float64) : 0);
}

void OperationPrices::cross_entropy_back(const Operation& op) {
  const double logits = elements(op.in[1]);
  const Held labels = own_tokens(op.in[2]);
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

// On a device the first chunk shows the worst moment. On a host numbers of the chunks before are there, too: the last
// of all rows, and the rest behind it.
std::vector<OperationPrices::Chunk> OperationPrices::worst_chunks(const Operation& op, int x) const {
  const double all = tokens(x), rows = chunk_rows(op);
  if (!on_host_) return {{rows, 0}};
  const double whole = std::floor(all / rows);
  std::vector<Chunk> chunks = {{rows, (whole - 1) * rows}};
  if (whole * rows < all) chunks.push_back({all - whole * rows, whole * rows});
  return chunks;
}

// To its logits.
Held OperationPrices::loss_chunk(const Operation& op, int x, double rows) {
  const Weight w = weight(op);
  const double all = tokens(x);
  Held logits = projected(rows, w);
  if (op.parameters.size() > 1) move(kBiasMoves * all * w.out);
  move_logits(kLossMoves, kWideLossMoves, all * w.out);
  if (!on_host_) {
    const Held numbers = memory.take((is_cut(op) ? 3 : 2) * rows * loss_number());
    if (!kernels_) memory.for_a_while(rows * w.out * wide_);
    return logits;
  }
  const Held wide = narrow() ? memory.take(rows * w.out * wide_) : Held();
  const Held numbers = memory.take(2 * rows * loss_number());
  if (is_cut(op)) memory.for_a_while(joined_bytes(rows));
  memory.for_a_while(wide_);  // the loss
  return logits;
}

// Of a host: the loss of a chunk, also in float64, and the sum of those before.
double OperationPrices::loss_scalars(const Chunk& chunk) const {
  const double number = bytes_of(DType::float64);
  return wide_ + (wide_ < number ? number : 0) + (chunk.before > 0 ? number : 0);
}

// The logits become their gradient, and what is wanted is made of it. To the gradient of x. What is moved is counted
// for all chunks.
Held OperationPrices::loss_chunk_back(const Operation& op, int x, Held logits, const LossGradients& wanted) {
  const Weight w = weight(op);
  const double all = tokens(x), rows = wanted.rows;
  move_logits(kGradientMoves, kWideGradientMoves, all * w.out);
  if (narrow() && !kernels_) {
    const Held wide = memory.take(rows * w.out * wide_);
    logits = narrow_values(rows * w.out);
  }
  Held gx = wanted.made;  // the chunks' together
  if (wanted.inputs && !gx && rows < all) gx = narrow_values(all * w.in);
  if (gx) move(2 * all * w.in);
  if (wanted.inputs) {
    const Held chunk = product(rows, w.out, w.in, /*at_once=*/true);
    if (rows == all) gx = chunk;
  }
  if (wanted.weights) {
    if (op.parameters.size() > 1) {
      move(all * w.out);
      const Held wide = on_host_ && narrow() ? memory.take(rows * w.out * wide_) : Held();
      if (on_host_) memory.for_a_while(column_sums(rows, w.out));
    }
    memory.for_a_while(weight_bytes(rows, w));
  }
  return gx;
}

void OperationPrices::head_loss(const Operation& op) {
  const Held labels = own_tokens(op.in[1]);
  const double all = tokens(op.in[0]), number = loss_number();
  const bool keeps = op.out[1] >= 0;
  for (const Chunk& chunk : worst_chunks(op, op.in[0])) {
    const Held before = chunk.before > 0 ? memory.take((keeps ? chunk.before * number : 0) + number) : Held();
    const Held logits = loss_chunk(op, op.in[0], chunk.rows);
    if (on_host_) memory.for_a_while(chunk.rows * number + loss_scalars(chunk));
  }
  const Held apart = on_host_ && keeps && chunk_rows(op) < all ? memory.take(all * number) : Held();
  if (on_host_) value(op.out[0]) = take(op.out[0]);
  if (keeps) value(op.out[1]) = memory.take(all * number);
}

void OperationPrices::head_loss_gradients(const Operation& op) {
  const Held labels = own_tokens(op.in[1]);
  const int gx = op.out.back();
  for (const Chunk& chunk : worst_chunks(op, op.in[0])) {
    LossGradients wanted{.rows = chunk.rows, .inputs = gx >= 0, .weights = true};
    const Held total = chunk.before > 0 ? memory.take(loss_number()) : Held();
    if (chunk.before > 0 && gx >= 0) wanted.made = value(gx) ? value(gx) : take(gx);
    Held logits = loss_chunk(op, op.in[0], chunk.rows);
    const Held numbers = memory.take(chunk.rows * loss_number() + (on_host_ ? loss_scalars({chunk.rows, 0}) : 0));
    const Held made = loss_chunk_back(op, op.in[0], std::move(logits), wanted);
    if (gx >= 0) value(gx) = made;
  }
  if (on_host_) value(op.out[0]) = take(op.out[0]);
}

void OperationPrices::head_loss_back(const Operation& op) {
  const Held labels = own_tokens(op.in[2]);
  const Weight w = weight(op);
  const bool inputs = op.out[0] >= 0;
  if (op.parameters.size() > 1) move(kBiasMoves * tokens(op.in[1]) * w.out);
  for (const Chunk& chunk : worst_chunks(op, op.in[1])) {
    LossGradients wanted{.rows = chunk.rows, .inputs = inputs, .weights = op.attributes.flag("weights")};
    if (chunk.before > 0 && inputs) wanted.made = value(op.out[0]) ? value(op.out[0]) : take(op.out[0]);
    const Held made = loss_chunk_back(op, op.in[1], projected(chunk.rows, w), wanted);
    if (inputs) value(op.out[0]) = made;
  }
}

}  // namespace orthant
