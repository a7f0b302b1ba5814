#include "orthant/ops/functions.h"
#include "orthant/ops/heads.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

void place_rotary(Placing& p) {
  p.want(0, Wanted::all_tokens);
  p.give(0, p.input(0));
}

void derive_rotary(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit({.name = "rotary_back", .in = {gy, op.in[1]}, .out = {gx}, .attributes = op.attributes}, Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> rotary_rules() {
  return {{.name = "rotary", .place = place_rotary, .derive = derive_rotary, .with_input = true}};
}

void set_heads(Attributes& attributes, const ops::Heads& heads) {
  attributes.set("heads", heads.heads);
  attributes.set("kv_heads", heads.kv_heads);
  attributes.set("head_size", heads.head_size);
}

Value ops::rotary(Recorder& r, Value qkv, const Heads& heads, const Rotary& rotary, Value documents) {
  const int turned = r.value("turned", r.dims(qkv));
  Operation operation{.name = "rotary", .in = {qkv.id, documents.id}, .out = {turned}};
  set_heads(operation.attributes, heads);
  operation.attributes.set("theta", rotary.theta);
  operation.attributes.set("max_positions", rotary.max_positions);
  operation.attributes.set("scaling", rotary.scaling);
  r.add(std::move(operation));
  return {turned};
}

}  // namespace orthant
