#include "orthant/ops/functions.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

// Of a table that is cut along its entries a rank adds what it holds: the ranks' sums are summands of the whole.
void place_embedding(Placing& p) {
  bool cut = false;
  for (std::size_t i = 0; i < p.operation().parameters.size(); ++i) cut = cut || p.parameter(i).cut_dim == 0;
  ValuePlace out{p.recorded(0)};
  if (cut) {
    out.partial = Axis::tp;
  } else if (p.rests_cut(0)) {
    out.dims[0].cuts = {{Axis::tp}};
  }
  p.give(0, std::move(out));
}

// Gradients of a cut table are those of all tokens, of a whole one those that the rank has.
void derive_embedding(Deriving& d) {
  const Operation& op = d.operation();
  if (d.gradient(0) < 0) return;
  for (const bool cut : {false, true}) {
    for (std::size_t i = 0; i < op.parameters.size(); ++i) {
      if (!d.trains(i) || (d.parameter(i).cut_dim == 0) != cut) continue;
      Operation made{.name = "embedding_weight",
                     .in = {cut ? d.gradient(0) : d.resting_gradient(0), op.in[i]},
                     .parameters = {op.parameters[i]},
                     .attributes = op.attributes};
      made.attributes.set("lookup", static_cast<std::int64_t>(i));
      d.emit(std::move(made), Part::weights);
    }
  }
}

const char* by_name(ops::Lookup::By by) {
  switch (by) {
    case ops::Lookup::By::ids:
      return "ids";
    case ops::Lookup::By::positions:
      return "positions";
    case ops::Lookup::By::document_positions:
      return "document_positions";
    case ops::Lookup::By::counted_positions:
      return "counted_positions";
    case ops::Lookup::By::zeros:
      return "zeros";
  }
  return "";
}

}  // namespace

std::vector<OpRule> embedding_rules() {
  return {{.name = "embedding", .place = place_embedding, .derive = derive_embedding}};
}

// Attributes of lookup i have its number behind them.
Value ops::embedding(Recorder& r, const std::vector<Lookup>& lookups, std::int64_t channels) {
  const int sum = r.value("embedded", {{Sym::tokens}, {Sym::one, channels}});
  Operation operation{.name = "embedding", .out = {sum}};
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    const Lookup& lookup = lookups[i];
    const std::string number = std::to_string(i);
    operation.in.push_back(lookup.ids.id);
    operation.parameters.push_back(r.parameter(lookup.table));
    operation.attributes.set("by" + number, std::string(by_name(lookup.by)));
    operation.attributes.set("entries" + number, lookup.entries);
    if (lookup.by != Lookup::By::counted_positions) continue;
    operation.attributes.set("padding" + number, lookup.padding);
    operation.attributes.set("first" + number, lookup.first);
  }
  r.add(std::move(operation));
  return {sum};
}

}  // namespace orthant
