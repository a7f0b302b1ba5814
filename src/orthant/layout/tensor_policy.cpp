#include "orthant/layout/tensor_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/base/wildcard.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/layout/tensor_styles.h"

namespace orthant {
namespace {

struct StyleName {
  std::string_view name;
  TensorStyle style;
};

// The style's own name first.
constexpr std::array<StyleName, 9> kStyleNames = {{{"column", TensorStyle::column},
                                                   {"row", TensorStyle::row},
                                                   {"sequence", TensorStyle::sequence},
                                                   {"replicate", TensorStyle::replicate},
                                                   {"colwise", TensorStyle::column},
                                                   {"rowwise", TensorStyle::row},
                                                   {"ColwiseParallel", TensorStyle::column},
                                                   {"RowwiseParallel", TensorStyle::row},
                                                   {"SequenceParallel", TensorStyle::sequence}}};

template <typename Action>
void for_split_parameters(const GraphSpec& graph, const Action& action) {
  for (const UnitSpec& unit : graph.units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.tp) action(parameter);
    }
  }
}

// Heads of a column product alone may be fewer than ranks: a copy of a key/value head serves query heads of its own.
// What is summed over tp, and logits, must have a part on every rank.
bool may_be_copied(const ParameterSpec& parameter) {
  return parameter.tp->dim == 0 && parameter.tp->granule > 1 && !parameter.table;
}

std::vector<std::int64_t> granules_of(const ParameterSpec& parameter) {
  const Split& split = *parameter.tp;
  std::vector<std::int64_t> sizes = split.blocks;
  if (sizes.empty()) sizes = {parameter.shape[static_cast<std::size_t>(split.dim)]};
  for (std::int64_t& size : sizes) size /= split.granule;
  return sizes;
}

bool fits(const ParameterSpec& parameter, std::int64_t degree) {
  return std::ranges::all_of(granules_of(parameter), [&](std::int64_t granules) {
    if (granules < degree) return may_be_copied(parameter) && degree % granules == 0;
    return parameter.tp->granule == 1 || granules % degree == 0;
  });
}

bool all_fit(const GraphSpec& graph, std::int64_t degree) {
  bool all = true;
  for_split_parameters(graph, [&](const ParameterSpec& parameter) { all = all && fits(parameter, degree); });
  return all;
}

// The nearest degrees that every parameter fits: up to four below and one above.
std::string degrees_that_fit(const GraphSpec& graph, std::int64_t degree) {
  constexpr std::size_t kBelow = 4;
  std::vector<std::int64_t> degrees;
  for (std::int64_t d = degree - 1; d > 0 && degrees.size() < kBelow; --d) {
    if (all_fit(graph, d)) degrees.insert(degrees.begin(), d);
  }
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for_split_parameters(graph, [&](const ParameterSpec& parameter) {
    if (!may_be_copied(parameter)) most = std::min(most, std::ranges::min(granules_of(parameter)));
  });
  for (std::int64_t d = degree + 1; d <= most; ++d) {
    if (!all_fit(graph, d)) continue;
    degrees.push_back(d);
    break;
  }
  const std::int64_t last = degrees.back();
  degrees.pop_back();
  return degrees.empty() ? std::to_string(last) : fmt::format("{} or {}", fmt::join(degrees, ", "), last);
}

std::string misfit(const ParameterSpec& parameter, int degree) {
  const std::int64_t parts = std::ranges::min(granules_of(parameter));
  const bool heads = parameter.tp->granule > 1;
  const auto text = fmt::format("parameter {}: its {} {} cannot be shared by tp={}", parameter.name, parts,
                                heads ? "heads" : "entries", degree);
  if (parts >= degree) return text + ": each rank must hold equally many";
  return text + ": each rank must hold one, and only key/value heads may be held in copies, by a multiple of them";
}

void check_degree(const GraphSpec& graph, int degree) {
  for_split_parameters(graph, [](const ParameterSpec& parameter) { local_parameter(parameter, 1, 0); });  // well-formed
  for_split_parameters(graph, [&](const ParameterSpec& parameter) {
    if (fits(parameter, degree)) return;
    throw ConfigError(misfit(parameter, degree),
                      {.remedy = fmt::format("set tp to {}", degrees_that_fit(graph, degree))});
  });
}

void clear_sequence(GraphSpec& graph) {
  for (ValueSpec& value : graph.values) value.sequence_sharded = false;
  for (UnitSpec& unit : graph.units) {
    for (ParameterSpec& parameter : unit.parameters) parameter.partial_under_sequence_parallel = false;
  }
}

// A weight that every head is used with has a partial gradient where the unit's heads are cut.
void mark_head_partials(GraphSpec& graph) {
  for (UnitSpec& unit : graph.units) {
    const bool cuts_heads = std::ranges::any_of(
        unit.parameters, [](const ParameterSpec& parameter) { return parameter.tp && parameter.tp->granule > 1; });
    for (ParameterSpec& parameter : unit.parameters) {
      if (parameter.used_per_head) parameter.partial_under_sequence_parallel = cuts_heads;
    }
  }
}

void clear_value_splits(GraphSpec& graph) {
  for (ValueSpec& value : graph.values) value.tp.reset();
}

}  // namespace

std::string_view tensor_style_name(TensorStyle style) {
  return std::ranges::find(kStyleNames, style, &StyleName::style)->name;
}

TensorStyle parse_tensor_style(std::string_view text) {
  const auto found = std::ranges::find(kStyleNames, text, &StyleName::name);
  if (found != kStyleNames.end()) return found->style;
  std::vector<std::string> names;
  for (const StyleName& style : kStyleNames) names.emplace_back(style.name);
  throw ConfigError(fmt::format("unknown tensor style \"{}\"", text), {.remedy = did_you_mean(text, names)});
}

bool matches_style_pattern(std::string_view pattern, std::string_view parameter) {
  std::size_t begin = 0;
  while (true) {
    const std::string_view parts = parameter.substr(begin);
    for (std::size_t end = parts.find('.'); end != std::string_view::npos; end = parts.find('.', end + 1)) {
      if (matches_pattern(pattern, parts.substr(0, end))) return true;
    }
    if (matches_pattern(pattern, parts)) return true;
    const std::size_t dot = parts.find('.');
    if (dot == std::string_view::npos) return false;
    begin += dot + 1;
  }
}

TensorSharing sharing_of(const TensorPolicy& policy, int tp_degree) {
  if (tp_degree == 1) return {};
  return {.degree = tp_degree,
          .sequence_parallel = policy.sequence_parallel,
          .regather = policy.sequence_parallel && policy.regather,
          .loss_parallel = policy.loss_parallel};
}

GraphSpec resolved_graph(GraphSpec graph, const TensorPolicy& policy, int tp_degree) {
  if (tp_degree < 1) throw InternalError(fmt::format("graph \"{}\": no tp of degree {}", graph.name, tp_degree));
  const TensorSharing sharing = sharing_of(policy, tp_degree);
  if (graph.tensor == sharing) return graph;
  if (graph.tensor) {
    throw InternalError(
        fmt::format("graph \"{}\" lies over {} tp ranks by other settings", graph.name, graph.tensor->degree));
  }
  graph.tensor = sharing;
  if (tp_degree == 1) {
    GraphSpec as_if = graph;  // styles have no effect, and are checked all the same
    apply_tensor_styles(as_if, policy);
    clear_sequence(graph);
    clear_value_splits(graph);
    for (UnitSpec& unit : graph.units) {
      for (ParameterSpec& parameter : unit.parameters) parameter.tp.reset();
    }
    return graph;
  }
  apply_tensor_styles(graph, policy);
  check_degree(graph, tp_degree);
  if (!policy.sequence_parallel) clear_sequence(graph);
  mark_head_partials(graph);
  if (!policy.loss_parallel) clear_value_splits(graph);
  return graph;
}

}  // namespace orthant
