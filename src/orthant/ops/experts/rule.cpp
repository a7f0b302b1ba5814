// A mixture of experts: `route` chooses experts for every token, `dispatch` lays a copy of each token where its expert
// finds it, `expert_product` multiplies the rows of every expert by that expert's weight, `combine` adds what came
// back.
//
// Note [Routed rows]: a token that k experts take has k slots, and slot t k + j has a row. Rows are sorted by expert
// and, within one, by token. `places` says for every slot where its row lies, `slots` for every row whose it is. Over
// ep each rank sorts the rows of its own tokens, and dispatch and combine exchange them (ops/experts/token_exchange.h):
// dispatch makes the rows of the rank's own experts, sorted by expert, then by the rank they come from. `held` counts
// them, per rank that sent them and own expert.
#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Tokens rest where experts are whole; ranks that share each expert need all of them.
void place_route(Placing& p) {
  const bool shared = p.parameter(0).cut_dim >= 0;
  p.want(0, shared ? Wanted::all_tokens : Wanted::resting, /*again=*/false);
  const auto& cuts = p.input(0).dims[0].cuts;
  for (std::size_t i = 0; i < p.operation().out.size(); ++i) {
    ValuePlace out{p.recorded(i)};
    if (out.dims[0].sym == Sym::tokens) out.dims[0].cuts = cuts;
    for (DimCut& cut : out.dims[0].cuts) cut.granule = out.dims[0].factor;
    p.give(i, std::move(out));
  }
}

void derive_route(Deriving& d) {
  const Operation& op = d.operation();
  const int gw = d.gradient(0);
  if (gw < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit({.name = "route_back", .in = {gw, op.in[0], op.out[1]}, .out = {gx}, .attributes = op.attributes},
         Part::inputs);
  d.contribute(0, gx);
}

// in x, places, slots, counts; out rows, held.
void place_dispatch(Placing& p) {
  const bool all = !p.input(1).cuts_tokens();
  p.want(0, all ? Wanted::all_tokens : Wanted::resting, /*again=*/true);
  ValuePlace rows{p.recorded(0)};
  rows.dims[0].cuts = p.input(1).dims[0].cuts;
  for (DimCut& cut : rows.dims[0].cuts) cut.granule = rows.dims[0].factor;  // whole tokens
  p.give(0, std::move(rows));
  p.give(1, {p.recorded(1)});
}

void derive_dispatch(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0], !d.placement(gy).partial.empty());
  d.emit({.name = "dispatch_back", .in = {gy, op.in[1], op.in[3], op.out[1]}, .out = {gx}, .attributes = op.attributes},
         Part::inputs);
  d.contribute(0, gx);
}

// Channels of each expert's output: the blocks of one expert among those of all.
DimCut channels_of_one(const ParameterAt& weight, std::int64_t experts) {
  DimCut cut = weight.cut;
  cut.blocks.resize(cut.blocks.size() / static_cast<std::size_t>(experts));
  return cut;
}

// in rows, held; a joined parameter [experts x out, in].
void place_expert_product(Placing& p) {
  const ParameterAt& weight = p.parameter(0);
  ValuePlace out{p.recorded(0)};
  out.dims[0] = p.input(0).dims[0];
  if (weight.cut_dim == 0) {
    out.dims.back().cuts = {channels_of_one(weight, p.operation().attributes.integer("experts"))};
  }
  if (weight.cut_dim == 1) out.partial = weight.cut.axis;
  p.give(0, std::move(out));
}

void derive_expert_product(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  if (d.needs(0)) {
    const int gx = d.new_gradient(op.in[0], /*partial=*/d.parameter(0).cut_dim == 0);
    d.emit({.name = "expert_product_back",
            .in = {gy, op.in[1]},
            .out = {gx},
            .parameters = op.parameters,
            .attributes = op.attributes},
           Part::inputs);
    d.contribute(0, gx);
  }
  if (d.trains(0)) {
    d.emit({.name = "expert_product_weight",
            .in = {gy, op.in[0], op.in[1]},
            .parameters = op.parameters,
            .attributes = op.attributes},
           Part::weights);
  }
}

// in rows, weights, places, counts, held. A summand of every row makes a summand of every token.
void place_combine(Placing& p) {
  ValuePlace out{p.recorded(0)};
  out.dims[0].cuts = p.input(1).dims[0].cuts;
  out.partial = p.input(0).partial;
  p.give(0, std::move(out));
}

void derive_combine(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const bool summands = !d.placement(op.in[0]).partial.empty();
  const int rows = d.new_gradient(op.in[0]);
  const int weights = d.needs(1) ? d.new_gradient(op.in[1], summands) : -1;
  Operation back{.name = "combine_back", .in = {gy}, .out = {rows, weights}, .attributes = op.attributes};
  back.in.insert(back.in.end(), op.in.begin(), op.in.end());
  d.emit(std::move(back), Part::inputs);
  d.contribute(0, rows);
  if (weights >= 0) d.contribute(1, weights);
}

// in logits, chosen, labels; out loss, shares. Every rank makes the summand of its own tokens.
void place_router_loss(Placing& p) {
  const bool own = p.input(1).cuts_tokens();
  p.want(0, own ? Wanted::resting : Wanted::all_tokens);
  ValuePlace loss{p.recorded(0)};
  if (own) loss.partial = Axis::tp;
  p.give(0, std::move(loss));
  p.give(1, {p.recorded(1)});
}

void derive_router_loss(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  const bool trains = op.attributes.number("balance") > 0 || op.attributes.number("z") > 0;
  if (gy < 0 || !d.needs(0) || !trains) return;
  const int gx = d.new_gradient(op.in[0]);
  d.emit(
      {.name = "router_loss_back", .in = {gy, op.in[0], op.in[2], op.out[1]}, .out = {gx}, .attributes = op.attributes},
      Part::inputs);
  d.contribute(0, gx);
}

// in x, gate.
void place_token_gate(Placing& p) {
  p.want(0, Wanted::resting);
  p.want(1, Wanted::resting);
  p.give(0, p.input(0));
}

void derive_token_gate(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  Operation back{.name = "token_gate_back", .in = {gy, op.in[0], op.in[1]}, .out = {-1, -1}};
  for (const std::size_t i : {0, 1}) {
    if (d.needs(i)) back.out[i] = d.new_gradient(op.in[i]);
  }
  const auto made = back.out;
  d.emit(std::move(back), Part::inputs);
  for (const std::size_t i : {0, 1}) {
    if (made[i] >= 0) d.contribute(i, made[i]);
  }
}

}  // namespace

std::vector<OpRule> experts_rules() {
  return {{.name = "route", .place = place_route, .derive = derive_route, .decides = true},
          {.name = "dispatch", .place = place_dispatch, .derive = derive_dispatch, .passes_summands = true},
          {.name = "expert_product", .place = place_expert_product, .derive = derive_expert_product},
          {.name = "combine", .place = place_combine, .derive = derive_combine},
          {.name = "router_loss", .place = place_router_loss, .derive = derive_router_loss, .decides = true},
          {.name = "token_gate", .place = place_token_gate, .derive = derive_token_gate}};
}

Value ops::token_gate(Recorder& r, Value x, Value gate) {
  const int gated = r.value("gated", r.dims(x));
  r.add({.name = "token_gate", .in = {x.id, gate.id}, .out = {gated}});
  return {gated};
}

namespace {

// Experts of a layer in groups, and what routers are trained by.
void set_kind(Operation& route, const ops::Experts& kind) {
  route.attributes.set("per_token", kind.per_token);
  route.attributes.set("normalised", std::int64_t{kind.normalised});
  route.attributes.set("sigmoid", std::int64_t{kind.sigmoid});
  route.attributes.set("groups", kind.groups);
  route.attributes.set("groups_taken", kind.groups_taken);
  route.attributes.set("scaling", kind.scaling);
}

Value router_loss(Recorder& r, Value logits, int chosen, Value labels, const ops::Experts& kind) {
  if (labels.id < 0) return {};
  const int loss = r.value("router_loss", {}, Number::statistic);
  const int shares = r.value("shares", {{Sym::rows, 1}, {Sym::one, kind.count}}, Number::statistic);
  Operation operation{.name = "router_loss", .in = {logits.id, chosen, labels.id}, .out = {loss, shares}};
  operation.attributes.set("balance", kind.loss.balance);
  operation.attributes.set("z", kind.loss.z);
  operation.attributes.set("sigmoid", std::int64_t{kind.sigmoid});
  r.add(std::move(operation));
  return {loss};
}

}  // namespace

ops::RoutedTokens ops::experts(Recorder& r, Value x, const Experts& kind, Value labels) {
  const Value logits = linear(r, x, {.weight = kind.router, .out = kind.count});
  const std::vector<Dim> per_slot = {r.dims(x)[0], {Sym::one, kind.per_token}};
  Dim routed = r.dims(x)[0];
  routed.factor *= kind.per_token;
  const int weights = r.value("weights", per_slot, Number::statistic);
  const int chosen = r.value("chosen", per_slot, Number::place);
  const int places = r.value("places", per_slot, Number::place);
  const int slots = r.value("slots", {routed}, Number::place);
  const int counts = r.value("counts", {{Sym::one, kind.count}}, Number::place);
  const int inputs = r.joined(kind.inputs);
  Operation route{
      .name = "route", .in = {logits.id}, .out = {weights, chosen, places, slots, counts}, .parameters = {inputs}};
  if (!kind.bias.empty()) route.parameters.push_back(r.parameter(kind.bias));
  set_kind(route, kind);
  r.add(std::move(route));
  const Value loss = router_loss(r, logits, chosen, labels, kind);

  const int rows = r.value("rows", {routed, {Sym::one, r.channels(x)}});
  const int held = r.value("held", {{Sym::one, kind.count}}, Number::place);
  r.add({.name = "dispatch", .in = {x.id, places, slots, counts}, .out = {rows, held}});
  const auto product = [&](const char* name, int from, int parameter, std::int64_t channels) {
    const int made = r.value(name, {routed, {Sym::one, channels}});
    Operation operation{.name = "expert_product", .in = {from, held}, .out = {made}, .parameters = {parameter}};
    operation.attributes.set("experts", kind.count);
    r.add(std::move(operation));
    return made;
  };
  const Value active = activation(r, {product("gates", rows, inputs, 2 * kind.inner)}, "swiglu");
  const int back = product("answers", active.id, r.joined(kind.outputs), r.channels(x));
  const int y = r.value("combined", r.dims(x));
  r.add({.name = "combine", .in = {back, weights, places, counts, held}, .out = {y}});
  return {{y}, loss};
}

}  // namespace orthant
