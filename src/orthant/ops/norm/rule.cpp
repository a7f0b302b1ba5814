#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// `numbers`: statistics per token.
Value record_norm(Recorder& r, const char* name, Value x, std::vector<int> parameters, double eps, std::int64_t numbers,
                  bool remade = false) {
  const int y = r.value("normed", r.dims(x));
  const int statistics = r.value("statistics", {r.dims(x)[0], {Sym::one, numbers}}, Number::statistic);
  Operation operation{.name = name, .in = {x.id}, .out = {y, statistics}, .parameters = std::move(parameters)};
  operation.attributes.set("eps", eps);
  if (remade) operation.attributes.set("remade", 1);
  r.add(std::move(operation));
  return {y};
}

void place_norm(Placing& p) {
  p.want(0, Wanted::resting);
  ValuePlace statistics{p.recorded(1)};
  statistics.dims[0] = p.input(0).dims[0];
  p.give(0, p.input(0));
  p.give(1, statistics);
}

// Backward reads what was normalised and its statistics, and adds what came back beside the norm.
void derive_norm(Deriving& d, const char* back) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  bool trains = false;
  for (std::size_t i = 0; i < op.parameters.size(); ++i) trains = trains || d.trains(i);
  Operation made{.name = back, .in = {gy, op.in[0], op.out[1]}, .parameters = op.parameters};
  made.attributes.set("weights", std::int64_t{trains});
  if (!d.needs(0)) {
    made.out = {-1};
    if (trains) d.emit(std::move(made), Part::weights);
    return;
  }
  const int gx = d.new_gradient(op.in[0]);
  made.in.push_back(d.take_gradient(0));
  made.out = {gx};
  d.emit(std::move(made), trains ? Part::both : Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> norm_rules() {
  return {{.name = "rms_norm",
           .place = place_norm,
           .derive = [](Deriving& d) { derive_norm(d, "rms_norm_back"); },
           .remade_by_name = true},
          {.name = "layer_norm",
           .place = place_norm,
           .derive = [](Deriving& d) { derive_norm(d, "layer_norm_back"); },
           .remade_by_name = true}};
}

Value ops::rms_norm(Recorder& r, Value x, const std::string& weight, double eps, bool remade) {
  return record_norm(r, "rms_norm", x, {r.parameter(weight)}, eps, 1, remade);
}

Value ops::layer_norm(Recorder& r, Value x, const std::string& weight, const std::string& bias, double eps) {
  return record_norm(r, "layer_norm", x, {r.parameter(weight), r.parameter(bias)}, eps, 2);
}

}  // namespace orthant
