#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

void place_waves(Placing& p) {
  p.want(0, Wanted::resting);
  p.give(0, p.input(0));
}

void derive_waves(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit({.name = "scale", .in = {gy}, .out = {gx}, .attributes = op.attributes}, Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> waves_rules() {
  return {{.name = "waves", .place = place_waves, .derive = derive_waves}};
}

Value ops::add_waves(Recorder& r, Value x, double scale) {
  const int y = r.value("placed", r.dims(x));
  Operation operation{.name = "waves", .in = {x.id}, .out = {y}};
  operation.attributes.set("scale", scale);
  r.add(std::move(operation));
  return {y};
}

}  // namespace orthant
