// What operations of experts take beside what they make. On a host in a dtype that it multiplies in. On a device with
// kernels nothing: rows are there for every slot, also of those that are dropped.
#include <algorithm>

#include "orthant/plan/estimate/operation_price.h"

namespace orthant {
namespace {

constexpr double kPlace = 8;       // bytes of a number that says where something lies
constexpr double kActivated = 64;  // rows of an activation's gradient that are made at a time

}  // namespace

// Of every token a row per slot, one slot after the other.
void OperationPrices::add_rows(int made, int places) {
  move((kernels_ ? channels(places) + 1 : 2 * channels(places)) * elements(made));
  value(made) = take(made);
  if (on_host_ && channels(places) > 1) memory.for_a_while(bytes(made) + kPlace * tokens(places));
}

void OperationPrices::combine(const Operation& op) {
  add_rows(op.out[0], op.in[1]);
}

void OperationPrices::dispatch_back(const Operation& op) {
  if (op.out[0] >= 0) add_rows(op.out[0], op.in[2]);
  if (op.out[1] >= 0) value(op.out[1]) = take(op.out[1]);
}

// Which token's each row is, as dispatch and the gradient of combine ask.
void OperationPrices::lay_rows(const Operation& op) {
  move(2 * elements(op.out[0]));
  value(op.out[0]) = take(op.out[0]);
  if (on_host_) memory.for_a_while(kPlace * tokens(op.out[0]));
  if (op.out.size() > 1 && op.out[1] >= 0) value(op.out[1]) = take(op.out[1]);
}

// Gates and ups, and what is made of them.
void OperationPrices::expert_activation(const Operation& op) {
  move((kernels_ ? 3 : 5) * elements(op.out[0]));
  value(op.out[0]) = take(op.out[0]);
}

void OperationPrices::expert_activation_back(const Operation& op) {
  move(6 * elements(op.in[0]));
  const bool owned = owns(op);
  const double rows = tokens(op.in[0]);
  for (const int out : {op.out[0], op.out[1]}) {
    if (out >= 0) value(out) = take(out);
  }
  const bool again = op.out.size() > 2 && op.out[2] >= 0;
  if (again) value(op.out[2]) = owned ? value(op.in[0]) : take(op.out[2]);
  if (kernels_) return;
  const double part = on_host_ ? std::min(rows, kActivated) : rows;
  const bool weighs = op.out[1] >= 0;
  const double activated = part * channels(op.in[0]), gates = part * channels(op.in[1]);
  memory.for_a_while((activated + gates) * element_ + (weighs ? activated * element_ + part * wide_ : 0));
}

}  // namespace orthant
