#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Where tokens are cut a rank has the rows whose first token it holds, and zeros elsewhere.
void place_first_token(Placing& p) {
  p.want(0, Wanted::resting);
  ValuePlace out{p.recorded(0)};
  if (p.input(0).cuts_tokens()) out.partial = Axis::tp;
  p.give(0, std::move(out));
}

void derive_first_token(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit({.name = "first_token_back", .in = {gy}, .out = {gx}}, Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> first_token_rules() {
  return {{.name = "first_token", .place = place_first_token, .derive = derive_first_token}};
}

Value ops::first_token(Recorder& r, Value x) {
  const int y = r.value("first", {{Sym::rows}, r.dims(x)[1]});
  r.add({.name = "first_token", .in = {x.id}, .out = {y}});
  return {y};
}

}  // namespace orthant
