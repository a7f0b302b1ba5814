// A user's module as an operation. It takes whole values: over tp every rank runs all of it, with the same result. What
// autograd keeps for its backward is a value, which is kept, or made again by running the module again. Its backward
// makes gradients of inputs and weights at once.
#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

constexpr const char* kSplits = "splits_backward";

void place_module(Placing& p) {
  for (std::size_t i = 0; i < p.operation().in.size(); ++i) p.want(i, Wanted::all_tokens);
  for (std::size_t i = 0; i < p.operation().out.size(); ++i) p.give(i, {p.recorded(i)});
}

void derive_module(Deriving& d) {
  const Operation& op = d.operation();
  Operation back{.name = "module_back", .in = {op.out.back()}, .parameters = op.parameters};
  for (std::size_t i = 0; i + 1 < op.out.size(); ++i) back.in.push_back(d.gradient(i));
  for (std::size_t i = 0; i < op.in.size(); ++i) back.out.push_back(d.needs(i) ? d.new_gradient(op.in[i]) : -1);
  const std::vector<int> gradients = back.out;
  d.emit(std::move(back), Part::inputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] >= 0) d.contribute(i, gradients[i]);
  }
  if (op.attributes.flag(kSplits)) d.emit({.name = "module_weights", .parameters = op.parameters}, Part::weights);
}

}  // namespace

std::vector<OpRule> module_rules() {
  return {{.name = "module", .place = place_module, .derive = derive_module}};
}

Body ops::module_body(const UnitSpec& unit, bool splits_backward) {
  Recorder r;
  Operation module{.name = "module"};
  for (const auto& name : unit.inputs) module.in.push_back(r.opaque(name).id);
  for (const auto& name : unit.outputs) {
    module.out.push_back(r.value(name, {}, Number::opaque));
    r.output({module.out.back()});
  }
  module.out.push_back(r.value("graph", {}, Number::opaque));
  const std::size_t prefix = unit.name.size() + 1;
  for (const auto& parameter : unit.parameters) module.parameters.push_back(r.parameter(parameter.name.substr(prefix)));
  if (splits_backward) module.attributes.set(kSplits, std::int64_t{1});
  r.add(std::move(module));
  return r.finish();
}

}  // namespace orthant
