#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Where channels are cut, those of the outputs are cut alike.
void place_activation(Placing& p) {
  if (!p.input(0).partial.empty()) p.want(0, Wanted::resting);
  ValuePlace out{p.recorded(0)};
  out.dims[0] = p.input(0).dims[0];
  if (const auto& cuts = p.input(0).dims.back().cuts; !cuts.empty()) {
    out.dims.back().cuts = {{cuts[0].axis, cuts[0].granule, {}}};
  }
  p.give(0, std::move(out));
}

void derive_activation(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit({.name = "activation_back", .in = {gy, op.in[0]}, .out = {gx}, .attributes = op.attributes}, Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> activation_rules() {
  return {{.name = "activation",
           .place = place_activation,
           .derive = derive_activation,
           .cheap = true,
           .back_makes_output = true,
           .remade_by_name = true}};
}

Value ops::activation(Recorder& r, Value x, const std::string& kind, double p, const std::string& site) {
  const std::int64_t channels = kind == "swiglu" ? r.channels(x) / 2 : r.channels(x);
  const int y = r.value("active", {r.dims(x)[0], {Sym::one, channels}});
  Operation operation{.name = "activation", .in = {x.id}, .out = {y}};
  operation.attributes.set("kind", kind);
  operation.attributes.set("p", p);
  operation.attributes.set("site", site);
  r.add(std::move(operation));
  return {y};
}

}  // namespace orthant
