// A mixture of experts: `route` chooses experts for every token, `dispatch` lays a copy of each token where its expert
// finds it, `expert_product` multiplies the rows of every expert by that expert's weight, `expert_activation` gates
// what the first product made and multiplies it by the weights that the router gave rows, `combine` adds what came
// back. Rows are weighted before the second product, so that no gradient needs what that product made.
//
// Note [Routed rows]: a token that k experts take has k slots, and slot t k + j has a row. Rows are sorted by expert
// and, within one, by token. `places` says for every slot where its row lies, -1 for one that was dropped, `slots` for
// every row whose it is. Over ep each rank sorts the rows of its own tokens, and exchanges of the program move rows and
// their weights to experts and what comes of them back (ops/experts/token_exchange.h): what arrives is sorted by
// expert, then by the rank it comes from. `held` counts it, per rank that sent it and own expert. Without ep rows are
// where they should be.
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

// in counts; out held.
void place_count_held(Placing& p) {
  if (p.parameter(0).expert_degree == 1) return p.pass_on();
  p.give(0, {p.recorded(0)});
  p.drop_parameters();
}

// in rows, counts, held.
void place_move(Placing& p, ExchangeSpec::Kind kind) {
  if (p.parameter(0).expert_degree == 1) return p.pass_on();
  ValuePlace out = p.input(0);
  out.dims.back().factor = p.recorded(0).back().factor;
  p.give(0, std::move(out));
  p.exchange({.kind = kind, .axis = Axis::ep});
}
void place_to_experts(Placing& p) {
  place_move(p, ExchangeSpec::Kind::to_experts);
}
void place_from_experts(Placing& p) {
  place_move(p, ExchangeSpec::Kind::from_experts);
}

// in x, weights, places, slots; out rows, row_weights. Where rows stay here, backward lays them anew.
void place_dispatch(Placing& p) {
  const bool all = !p.input(1).cuts_tokens();
  const bool gathered = all && p.rests_cut(0);
  p.want(0, all ? Wanted::all_tokens : Wanted::resting, /*again=*/true);
  for (const std::size_t i : {0, 1}) {
    ValuePlace rows{p.recorded(i)};
    rows.dims[0].cuts = p.input(1).dims[0].cuts;
    for (DimCut& cut : rows.dims[0].cuts) cut.granule = rows.dims[0].factor;  // whole tokens
    p.give(i, std::move(rows));
  }
  if (p.parameter(0).expert_degree == 1 && !gathered) p.set("again", 1);
  p.drop_parameters();
}

void derive_dispatch(Deriving& d) {
  const Operation& op = d.operation();
  Operation back{.name = "dispatch_back",
                 .in = {d.gradient(0), d.gradient(1), op.in[2]},
                 .out = {-1, -1},
                 .attributes = op.attributes};
  for (const std::size_t i : {0, 1}) {
    if (back.in[i] < 0 || !d.needs(i)) continue;
    back.out[i] = d.new_gradient(op.in[i], !d.placement(back.in[i]).partial.empty());
  }
  const auto made = back.out;
  if (made[0] < 0 && made[1] < 0) return;
  d.emit(std::move(back), Part::inputs);
  for (const std::size_t i : {0, 1}) {
    if (made[i] >= 0) d.contribute(i, made[i]);
  }
}

// in gates, row_weights. Channels are cut as those of an activation.
void place_expert_activation(Placing& p) {
  ValuePlace out{p.recorded(0)};
  out.dims[0] = p.input(0).dims[0];
  if (const auto& cuts = p.input(0).dims.back().cuts; !cuts.empty()) {
    out.dims.back().cuts = {{cuts[0].axis, cuts[0].granule, {}}};
  }
  p.give(0, std::move(out));
}

void derive_expert_activation(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  const bool cut = !d.placement(gy).dims.back().cuts.empty();
  const int gates = d.new_gradient(op.in[0]);
  const int weights = d.needs(1) ? d.new_gradient(op.in[1], /*partial=*/cut) : -1;
  d.emit({.name = "expert_activation_back", .in = {gy, op.in[0], op.in[1]}, .out = {gates, weights}}, Part::inputs);
  d.contribute(0, gates);
  if (weights >= 0) d.contribute(1, weights);
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

// in rows, places, slots. A summand of every row makes a summand of every token.
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
  const int rows = d.new_gradient(op.in[0]);
  d.emit({.name = "combine_back", .in = {gy, op.in[1], op.in[2]}, .out = {rows}, .attributes = op.attributes},
         Part::inputs);
  d.contribute(0, rows);
}

// in logits, chosen, labels, places; out loss, shares. Every rank makes the summand of its own tokens.
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
          {.name = "count_held", .place = place_count_held, .decides = true},
          {.name = "to_experts", .place = place_to_experts},
          {.name = "from_experts", .place = place_from_experts},
          {.name = "dispatch", .place = place_dispatch, .derive = derive_dispatch, .passes_summands = true},
          {.name = "expert_activation",
           .place = place_expert_activation,
           .derive = derive_expert_activation,
           .cheap = true,
           .back_makes_output = true},
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
  route.attributes.set("capacity", kind.capacity);
}

Value router_loss(Recorder& r, Value logits, int chosen, Value places, Value labels, const ops::Experts& kind) {
  if (labels.id < 0) return {};
  const int loss = r.value("router_loss", {}, Number::statistic);
  const int shares = r.value("shares", {{Sym::rows, 1}, {Sym::one, kind.count}}, Number::statistic);
  Operation operation{.name = "router_loss", .in = {logits.id, chosen, labels.id, places.id}, .out = {loss, shares}};
  operation.attributes.set("balance", kind.loss.balance);
  operation.attributes.set("z", kind.loss.z);
  operation.attributes.set("sigmoid", std::int64_t{kind.sigmoid});
  r.add(std::move(operation));
  return {loss};
}

}  // namespace

ops::SentTokens ops::send_to_experts(Recorder& r, Value x, const Experts& kind, Value labels) {
  const Value logits = linear(r, x, {.weight = kind.router, .out = kind.count});
  const std::vector<Dim> per_slot = {r.dims(x)[0], {Sym::one, kind.per_token}};
  Dim routed = r.dims(x)[0];
  routed.factor *= kind.per_token;
  const int weights = r.value("weights", per_slot, Number::statistic);
  const int chosen = r.value("chosen", per_slot, Number::place);
  SentTokens sent{.tokens = r.dims(x)};
  sent.places = {r.value("places", per_slot, Number::place)};
  sent.slots = {r.value("slots", {routed}, Number::place)};
  sent.counts = {r.value("counts", {{Sym::one, kind.count}}, Number::place)};
  const int inputs = r.joined(kind.inputs);
  Operation route{.name = "route",
                  .in = {logits.id},
                  .out = {weights, chosen, sent.places.id, sent.slots.id, sent.counts.id},
                  .parameters = {inputs}};
  if (!kind.bias.empty()) route.parameters.push_back(r.parameter(kind.bias));
  set_kind(route, kind);
  r.add(std::move(route));

  sent.held = {r.value("held", {{Sym::one, kind.count}}, Number::place)};
  r.add({.name = "count_held", .in = {sent.counts.id}, .out = {sent.held.id}, .parameters = {inputs}});
  const std::vector<Dim> rows = {routed, {Sym::one, r.channels(x)}};
  const std::vector<Dim> per_row = {routed, {Sym::one, 1}};
  const int own = r.value("rows", rows);
  const int own_weights = r.value("row_weights", per_row, Number::statistic);
  sent.drops = kind.capacity > 0;
  Operation dispatch{.name = "dispatch",
                     .in = {x.id, weights, sent.places.id, sent.slots.id},
                     .out = {own, own_weights},
                     .parameters = {inputs}};
  dispatch.attributes.set("drops", std::int64_t{sent.drops});
  r.add(std::move(dispatch));
  const auto move = [&](const char* name, int from, const std::vector<Dim>& dims, Number number) {
    const int to = r.value(name, dims, number);
    r.add({.name = "to_experts", .in = {from, sent.counts.id, sent.held.id}, .out = {to}, .parameters = {inputs}});
    return Value{to};
  };
  sent.rows = move("arrived", own, rows, Number::compute);
  sent.weights = move("arrived_weights", own_weights, per_row, Number::statistic);
  sent.loss = router_loss(r, logits, chosen, sent.places, labels, kind);
  return sent;
}

ops::SentTokens ops::run_experts(Recorder& r, SentTokens sent, const Experts& kind) {
  const std::vector<Dim> rows = r.dims(sent.rows);
  const int inputs = r.joined(kind.inputs), outputs = r.joined(kind.outputs);
  const auto product = [&](const char* name, int from, int parameter, std::int64_t channels) {
    const int made = r.value(name, {rows[0], {Sym::one, channels}});
    Operation operation{.name = "expert_product", .in = {from, sent.held.id}, .out = {made}, .parameters = {parameter}};
    operation.attributes.set("experts", kind.count);
    r.add(std::move(operation));
    return made;
  };
  const int gates = product("gates", sent.rows.id, inputs, 2 * kind.inner);
  const int active = r.value("active", {rows[0], {Sym::one, kind.inner}});
  r.add({.name = "expert_activation", .in = {gates, sent.weights.id}, .out = {active}});
  const int answers = product("answers", active, outputs, rows[1].factor);
  sent.rows = {r.value("returned", rows)};
  r.add({.name = "from_experts",
         .in = {answers, sent.counts.id, sent.held.id},
         .out = {sent.rows.id},
         .parameters = {inputs}});
  return sent;
}

ops::RoutedTokens ops::combine(Recorder& r, const SentTokens& sent) {
  const int y = r.value("combined", sent.tokens);
  Operation operation{.name = "combine", .in = {sent.rows.id, sent.places.id, sent.slots.id}, .out = {y}};
  operation.attributes.set("drops", std::int64_t{sent.drops});
  r.add(std::move(operation));
  return {{y}, sent.loss};
}

ops::RoutedTokens ops::experts(Recorder& r, Value x, const Experts& kind, Value labels) {
  return combine(r, run_experts(r, send_to_experts(r, x, kind, labels), kind));
}

}  // namespace orthant
