#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

void place_dropout(Placing& p) {
  p.want(0, Wanted::resting);
  p.give(0, p.input(0));
}

// The same factors, drawn again.
void derive_dropout(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit({.name = "dropout", .in = {gy}, .out = {gx}, .attributes = op.attributes}, Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> dropout_rules() {
  return {{.name = "dropout",
           .place = place_dropout,
           .derive = derive_dropout,
           .with_input = true,
           .remade_by_name = true}};
}

Value ops::dropout(Recorder& r, Value x, double p, const std::string& site) {
  if (p == 0) return x;
  const int y = r.value("dropped", r.dims(x));
  Operation operation{.name = "dropout", .in = {x.id}, .out = {y}};
  operation.attributes.set("p", p);
  operation.attributes.set("site", site);
  r.add(std::move(operation));
  return {y};
}

}  // namespace orthant
