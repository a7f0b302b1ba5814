#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

void place_concat(Placing& p) {
  for (std::size_t i = 0; i < p.operation().in.size(); ++i) p.want(i, Wanted::resting);
  p.give(0, {p.recorded(0)});
}

void derive_concat(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < op.in.size(); ++i) {
    const std::int64_t channels = d.placement(op.in[i]).dims.back().factor;
    if (d.needs(i)) {
      const int gx = d.new_gradient(op.in[i]);
      Operation part{.name = "part", .in = {gy}, .out = {gx}};
      part.attributes.set("first", first);
      part.attributes.set("channels", channels);
      d.emit(std::move(part), Part::inputs);
      d.contribute(i, gx);
    }
    first += channels;
  }
}

}  // namespace

std::vector<OpRule> concat_rules() {
  return {{.name = "concat", .place = place_concat, .derive = derive_concat}};
}

Value ops::concat(Recorder& r, const std::vector<Value>& values) {
  std::vector<Dim> dims = r.dims(values.front());
  dims.back().factor = 0;
  Operation operation{.name = "concat"};
  for (const Value value : values) {
    dims.back().factor += r.channels(value);
    operation.in.push_back(value.id);
  }
  operation.out = {r.value("joined", std::move(dims))};
  const Value out{operation.out.front()};
  r.add(std::move(operation));
  return out;
}

}  // namespace orthant
