#include "orthant/ops/functions.h"
#include "orthant/ops/heads.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Each rank has all tokens of its own heads, and a number for each head of queries and keys.
void place_head_norm(Placing& p) {
  p.want(0, Wanted::all_tokens);
  const Attributes& attributes = p.operation().attributes;
  ValuePlace statistics{p.recorded(1)};
  if (const auto& cuts = p.input(0).dims.back().cuts; !cuts.empty()) {
    statistics.dims.back().cuts = {{cuts[0].axis, 1, {attributes.integer("heads"), attributes.integer("kv_heads")}}};
  }
  p.give(0, p.input(0));
  p.give(1, std::move(statistics));
}

// Backward reads what was normalised and its statistics.
void derive_head_norm(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0) return;
  const bool trains = d.trains(0) || d.trains(1);
  Operation made{.name = "head_norm_back",
                 .in = {gy, op.in[0], op.out[1]},
                 .out = {-1},
                 .parameters = op.parameters,
                 .attributes = op.attributes};
  made.attributes.set("weights", std::int64_t{trains});
  if (!d.needs(0)) {
    if (trains) d.emit(std::move(made), Part::weights);
    return;
  }
  const int gx = d.new_gradient(op.in[0]);
  made.out = {gx};
  d.emit(std::move(made), trains ? Part::both : Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> head_norm_rules() {
  return {{.name = "head_norm", .place = place_head_norm, .derive = derive_head_norm}};
}

Value ops::head_norm(Recorder& r, Value qkv, const Heads& heads, const HeadNorm& norm) {
  const int normed = r.value("head_normed", r.dims(qkv));
  const int statistics =
      r.value("head_statistics", {r.dims(qkv)[0], {Sym::one, heads.heads + heads.kv_heads}}, Number::statistic);
  Operation operation{.name = "head_norm",
                      .in = {qkv.id},
                      .out = {normed, statistics},
                      .parameters = {r.parameter(norm.query), r.parameter(norm.key)}};
  set_heads(operation.attributes, heads);
  operation.attributes.set("eps", norm.eps);
  r.add(std::move(operation));
  return {normed};
}

}  // namespace orthant
