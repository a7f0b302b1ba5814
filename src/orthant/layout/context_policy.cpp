#include "orthant/layout/context_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "orthant/base/error.h"
#include "orthant/graph/heads.h"

namespace orthant {
namespace {

void for_attentions(const GraphSpec& graph, const std::function<void(const UnitSpec&, const Attributes&)>& action) {
  for (const UnitSpec& unit : graph.units) {
    if (!unit.body) continue;
    for (const auto& operation : unit.body->operations) {
      if (operation.name == "attention") action(unit, operation.attributes);
    }
  }
}

bool any_causal(const GraphSpec& graph) {
  bool causal = false;
  for_attentions(graph, [&](const UnitSpec&, const Attributes& attention) { causal |= attention.flag("causal"); });
  return causal;
}

std::int64_t sequence_of(const GraphSpec& graph, const UnitSpec& unit) {
  const auto field = graph.tokens_of(unit);
  return field.empty() ? 0 : graph.value(field).shape.at(1);
}

void check_rows(const GraphSpec& graph, const ContextSharing& sharing) {
  const auto opaque = std::ranges::find_if(graph.values, &ValueSpec::opaque);
  if (opaque != graph.values.end()) {
    throw ConfigError(fmt::format("value {}: units of a program's own graph do not say how cp={} would cut their rows",
                                  opaque->name, sharing.degree),
                      {.remedy = "use a mesh without cp, or one of the models of build_spec()"});
  }
  for (const UnitSpec& unit : graph.units) {
    const std::int64_t sequence = sequence_of(graph, unit);
    if (sequence == 0 || sequence >= least_sequence(sharing)) continue;
    throw ConfigError(fmt::format("unit {}: {}", unit.name, short_rows_text(sequence, sharing)),
                      {.remedy = short_rows_remedy(sharing)});
  }
}

}  // namespace

std::optional<ContextPolicy> parse_context(std::string_view text) {
  if (text == "auto") return ContextPolicy();
  const auto found = std::ranges::find(kContextWays, text, context_way_name);
  return found == kContextWays.end() ? std::nullopt : std::optional<ContextPolicy>(*found);
}

std::vector<std::string> context_words() {
  std::vector<std::string> words = {"auto"};
  for (const ContextWay way : kContextWays) words.emplace_back(context_way_name(way));
  return words;
}

ContextWay chosen_way(const GraphSpec& graph, int cp_degree) {
  const int tp = graph.tensor ? graph.tensor->degree : 1;
  double ring = 0, all_to_all = 0;
  bool divides = true;
  for_attentions(graph, [&](const UnitSpec& unit, const Attributes& attention) {
    const KeyRule rule{attention.flag("causal"), attention.integer("window")};
    const ContextSharing sharing{cp_degree, ContextWay::ring, rule.causal};
    // Of a forward pass the length comes with its rows.
    const std::int64_t sequence = std::max<std::int64_t>(sequence_of(graph, unit), 4096);
    const auto [heads, kv_heads, head_size] = local_heads(attention, tp);
    divides = divides && heads % cp_degree == 0;
    // What a reader sees of the others, in the mean over some.
    const int readers = std::min(cp_degree, 64);
    std::int64_t seen = 0;
    for (int r = 0; r < readers; ++r) {
      const int reader = static_cast<int>(std::int64_t{r} * cp_degree / readers);
      for (int holder = 0; holder < cp_degree; ++holder) {
        if (holder != reader) seen += seen_positions(sequence, sharing, rule, holder, reader);
      }
    }
    // Keys and values, in forward; again in backward, and their gradients.
    ring += 3.0 * 2 * static_cast<double>(seen * kv_heads) / readers;
    const double own = static_cast<double>(sequence) / cp_degree * (cp_degree - 1) / cp_degree;
    // Queries, keys, values and the output, and gradients of them.
    all_to_all += 2.0 * own * static_cast<double>(2 * heads + 2 * std::max<std::int64_t>(kv_heads, cp_degree));
  });
  return divides && all_to_all < ring ? ContextWay::all_to_all : ContextWay::ring;
}

ContextSharing context_sharing(const GraphSpec& graph, const ContextPolicy& policy, int cp_degree) {
  if (cp_degree == 1) return {};
  const bool causal = any_causal(graph);
  const auto sharing_by = [&](ContextWay way) {
    return ContextSharing{.degree = cp_degree, .way = way, .zigzag = way != ContextWay::all_to_all && causal};
  };
  if (policy) return sharing_by(*policy);
  // Rows too short for two chunks a rank may have one for each.
  const auto too_short = [&](const UnitSpec& unit) {
    const std::int64_t sequence = sequence_of(graph, unit);
    return sequence > 1 && sequence < least_sequence(sharing_by(ContextWay::ring));
  };
  if (std::ranges::any_of(graph.units, too_short)) return sharing_by(ContextWay::all_to_all);
  return sharing_by(chosen_way(graph, cp_degree));
}

GraphSpec with_shared_rows(GraphSpec graph, const ContextPolicy& policy, int cp_degree) {
  const ContextSharing sharing = context_sharing(graph, policy, cp_degree);
  if (cp_degree > 1) check_rows(graph, sharing);
  graph.context = sharing;
  return graph;
}

}  // namespace orthant
