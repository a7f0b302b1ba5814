#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Logits may be cut over the classes: ranks then exchange three numbers per token in the operation itself.
void place_cross_entropy(Placing& p) {
  if (!p.input(0).partial.empty()) p.want(0, Wanted::resting);
  p.set("cut", p.input(0).dims.back().cuts.empty() ? 0 : 1);
  p.give(0, {p.recorded(0)});
  p.give(1, {p.recorded(1)});
}

void derive_cross_entropy(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit({.name = "cross_entropy_back",
          .in = {gy, op.in[0], op.in[1], op.out[1]},
          .out = {gx},
          .attributes = op.attributes},
         Part::inputs);
  d.contribute(0, gx);
}

// The product that makes logits and their loss, for some tokens at a time: see ops/cross_entropy/head_loss.h.
void place_head_loss(Placing& p) {
  p.want(0, p.parameter(0).cut_dim == 0 ? Wanted::all_tokens : Wanted::resting);
  p.set("cut", p.parameter(0).cut_dim == 0 ? 1 : 0);
  p.give(0, {p.recorded(0)});
  p.give(1, {p.recorded(1)});
}

void derive_head_loss(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  bool trains = false;
  for (std::size_t i = 0; i < op.parameters.size(); ++i) trains = trains || d.trains(i);
  Operation made{.name = "head_loss_back",
                 .in = {gy, op.in[0], op.in[1], op.out[1]},
                 .out = {-1},
                 .parameters = op.parameters,
                 .attributes = op.attributes};
  made.attributes.set("weights", std::int64_t{trains});
  if (d.needs(0)) {
    made.out = {d.new_gradient(op.in[0], /*partial=*/d.parameter(0).cut_dim == 0)};
  } else if (!trains) {
    return;
  }
  const int gx = made.out[0];
  d.emit(std::move(made), gx < 0 ? Part::weights : trains ? Part::both : Part::inputs);
  if (gx >= 0) d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> cross_entropy_rules() {
  return {{.name = "cross_entropy", .place = place_cross_entropy, .derive = derive_cross_entropy},
          {.name = "head_loss", .place = place_head_loss, .derive = derive_head_loss},
          {.name = "head_loss_gradients"}};  // stands for a head_loss once programs are differentiated
}

Value ops::cross_entropy(Recorder& r, Value logits, Value labels, const LossKind& kind) {
  const int loss = r.value("loss", {}, Number::statistic);
  const int lse = r.value("lse", {r.dims(logits)[0]}, Number::statistic);
  Operation operation{.name = "cross_entropy", .in = {logits.id, labels.id}, .out = {loss, lse}};
  operation.attributes.set("classes", kind.classes);
  operation.attributes.set("class_weights", kind.class_weights);
  r.add(std::move(operation));
  return {loss};
}

}  // namespace orthant
