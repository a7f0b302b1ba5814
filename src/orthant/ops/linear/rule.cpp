// A linear layer is a product and, where it has one, a bias. Apart, the placement of each follows from its parameter:
// of a product that is cut by rows the bias belongs to the sum.
#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Note [Cut products]: over the tensor axis a column product reads all tokens and makes its own channels; a row product
// reads its own channels and makes a summand of every output. Between the two nothing travels. Forward sums after the
// row product, backward after the column product, where the sum travels while the weight's gradient is computed. Under
// sequence parallelism a sum leaves each rank its own tokens (scatter), and what needs all of them gathers them first:
// the same bytes, cut in two.
void place_product(Placing& p) {
  const ParameterAt& weight = p.parameter(0);
  ValuePlace out{p.recorded(0)};
  if (weight.cut_dim >= 0) {
    p.want(0, Wanted::all_tokens, /*again=*/true);
  } else {
    p.want(0, Wanted::resting);
  }
  out.dims[0] = p.input(0).dims[0];
  if (weight.cut_dim == 0) out.dims.back().cuts = {weight.cut};
  if (weight.cut_dim == 1) out.partial = weight.cut.axis;
  p.give(0, std::move(out));
}

void derive_product(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  if (d.needs(0)) {
    const int gx = d.new_gradient(op.in[0], /*partial=*/d.parameter(0).cut_dim == 0);
    Operation back{.name = "product_back", .in = {gy}, .out = {gx}, .parameters = op.parameters};
    if (op.attributes.flag(kFloat8)) back.attributes.set(kFloat8, 1);
    d.emit(std::move(back), Part::inputs);
    d.contribute(0, gx);
  }
  if (d.trains(0)) d.emit({.name = "product_weight", .in = {gy, op.in[0]}, .parameters = op.parameters}, Part::weights);
}

// Added once: by coordinate 0 to its summand, or by everybody to the sum.
void place_bias(Placing& p) {
  if (!p.input(0).partial.empty()) {
    if (p.rests_cut(0)) {
      p.want(0, Wanted::resting);
    } else {
      p.set("once", 1);
    }
  }
  p.give(0, p.input(0));
}

void derive_bias(Deriving& d) {
  const int gy = d.gradient(0);
  if (gy < 0) return;
  if (d.needs(0)) d.contribute(0, gy);
  if (d.trains(0)) {
    d.emit({.name = "bias_weight", .in = {gy}, .parameters = d.operation().parameters}, Part::weights);
  }
}

}  // namespace

std::vector<OpRule> linear_rules() {
  return {{.name = "product", .place = place_product, .derive = derive_product, .remade_by_name = true},
          {.name = "bias", .place = place_bias, .derive = derive_bias, .with_input = true, .remade_by_name = true}};
}

Value ops::linear(Recorder& r, Value x, const LinearParameters& parameters) {
  const auto parameter = [&](const std::string& name) {
    return parameters.joined ? r.joined(name) : r.parameter(name);
  };
  const std::vector<Dim> dims = {r.dims(x)[0], {Sym::one, parameters.out}};
  int y = r.value("product", dims);
  r.add({.name = "product", .in = {x.id}, .out = {y}, .parameters = {parameter(parameters.weight)}});
  if (parameters.bias.empty()) return {y};
  const int sum = r.value("biased", dims);
  r.add({.name = "bias", .in = {y}, .out = {sum}, .parameters = {parameter(parameters.bias)}});
  return {sum};
}

}  // namespace orthant
