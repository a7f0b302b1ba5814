#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// A summand over tp and a whole value: coordinate 0 adds it, and the sum is a summand, too. Not in front of a norm
// ("of_norm": see program/fuse.h), which reads the complete sum at once.
void place_add(Placing& p) {
  const auto partial = [&](std::size_t i) { return !p.input(i).partial.empty(); };
  if (partial(0) != partial(1)) {
    const std::size_t summand = partial(0) ? 0 : 1;
    if (p.rests_cut(summand) || p.operation().attributes.flag("of_norm")) {
      p.want(summand, Wanted::resting);
    } else {
      p.set("once", static_cast<std::int64_t>(summand) + 1);
      p.give(0, p.input(summand));
      return;
    }
  }
  p.give(0, p.input(0));
}

void derive_add(Deriving& d) {
  const int gy = d.gradient(0);
  if (gy < 0) return;
  for (const std::size_t i : {0, 1}) {
    if (d.needs(i)) d.contribute(i, gy);
  }
}

}  // namespace

std::vector<OpRule> add_rules() {
  return {{.name = "add", .place = place_add, .derive = derive_add, .with_input = true, .remade_by_name = true}};
}

Value ops::add(Recorder& r, Value a, Value b) {
  const int sum = r.value("sum", r.dims(a));
  r.add({.name = "add", .in = {a.id, b.id}, .out = {sum}});
  return {sum};
}

}  // namespace orthant
