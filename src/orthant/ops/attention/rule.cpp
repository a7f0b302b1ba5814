#include "orthant/ops/functions.h"
#include "orthant/ops/heads.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Outputs of the operation.
enum : std::size_t { kHeadsOut, kLse, kKeptBits, kMet };

// Each rank has all tokens of its own heads; with a context axis those of its positions, and the operation exchanges
// keys and values itself (ops/attention/context_attention.h).
void place_attention(Placing& p) {
  p.want(0, Wanted::all_tokens);
  const Attributes& attributes = p.operation().attributes;
  ValuePlace out{p.recorded(kHeadsOut)}, lse{p.recorded(kLse)}, bits{p.recorded(kKeptBits)};
  if (const auto& cuts = p.input(0).dims.back().cuts; !cuts.empty()) {
    out.dims.back().cuts = {{cuts[0].axis, attributes.integer("head_size"), {}}};
    lse.dims[1].cuts = {{cuts[0].axis, 1, {}}};
    bits.dims[1].cuts = lse.dims[1].cuts;
  }
  p.give(kHeadsOut, std::move(out));
  p.give(kLse, std::move(lse));
  p.give(kKeptBits, std::move(bits));
  if (p.operation().out.size() > kMet) p.give(kMet, p.input(0));
}

void derive_attention(Deriving& d) {
  const Operation& op = d.operation();
  const int gy = d.gradient(0);
  if (gy < 0 || !d.needs(0)) return;
  const int gx = d.new_gradient(op.in[0]);
  const int read = op.out.size() > kMet ? op.out[kMet] : op.in[0];
  d.emit({.name = "attention_back",
          .in = {gy, read, op.in[1], op.out[kHeadsOut], op.out[kLse], op.out[kKeptBits], op.in[2]},
          .out = {gx},
          .attributes = op.attributes},
         Part::inputs);
  d.contribute(0, gx);
}

}  // namespace

std::vector<OpRule> attention_rules() {
  return {{.name = "attention", .place = place_attention, .derive = derive_attention, .remade_by_name = true}};
}

Value ops::attention(Recorder& r, Value qkv, Value mask, const Heads& heads, const AttentionKind& kind,
                     Value documents) {
  const int out = r.value("attended", {r.dims(qkv)[0], {Sym::one, heads.heads * heads.head_size}});
  const int lse = r.value("lse", {{Sym::rows}, {Sym::one, heads.heads}, {Sym::sequence}}, Number::statistic);
  // A bit per probability, where a device drops some and keeps which.
  const int bits =
      r.value("bits", {{Sym::rows}, {Sym::one, heads.heads}, {Sym::sequence}, {Sym::sequence}}, Number::mask);
  Operation operation{.name = "attention", .in = {qkv.id, mask.id, documents.id}, .out = {out, lse, bits}};
  set_heads(operation.attributes, heads);
  operation.attributes.set("causal", std::int64_t{kind.causal});
  operation.attributes.set("window", kind.window);
  operation.attributes.set("p", kind.dropout);
  operation.attributes.set("site", kind.site);
  r.add(std::move(operation));
  return {out};
}

}  // namespace orthant
