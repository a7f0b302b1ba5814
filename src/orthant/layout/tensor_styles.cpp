#include "orthant/layout/tensor_styles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

// What a parameter is to tensor parallelism, as the model declares it.
enum class Part {
  column,    // weight or bias of a product whose output is cut
  row,       // weight of a product that is summed over tp
  row_bias,  // added once, after that sum
  table,     // cut over its entries
  tokens,    // whole, used on each rank's own tokens under sequence parallelism
  heads,     // whole, used on each rank's own heads
  whole,     // whole, used alike on every rank
};

// A name without the unit's.
std::string_view after_unit(const UnitSpec& unit, std::string_view name) {
  if (name.starts_with(unit.name) && name.substr(unit.name.size()).starts_with('.')) {
    return name.substr(unit.name.size() + 1);
  }
  return name;
}

// The weight that a bias is added to the product of, among the unit's own; null when it is no bias or there is none.
const ParameterSpec* weight_of(const UnitSpec& unit, const ParameterSpec& bias) {
  constexpr std::string_view kEnd = ".bias";
  if (!bias.name.ends_with(kEnd)) return nullptr;
  const std::string wanted = bias.name.substr(0, bias.name.size() - kEnd.size()) + ".weight";
  const auto found = std::ranges::find(unit.parameters, wanted, &ParameterSpec::name);
  return found == unit.parameters.end() ? nullptr : &*found;
}

Part part_of(const UnitSpec& unit, const ParameterSpec& parameter) {
  if (parameter.tp && parameter.table) return Part::table;
  if (parameter.tp) return parameter.tp->dim == 0 ? Part::column : Part::row;
  const ParameterSpec* weight = weight_of(unit, parameter);
  if (weight != nullptr && weight->tp) return Part::row_bias;
  if (parameter.used_per_head) return Part::heads;
  return parameter.partial_under_sequence_parallel ? Part::tokens : Part::whole;
}

// A parameter, and the place in `parallel.plan` of the pattern that holds for it; -1: none.
struct StyledParameter {
  UnitSpec* unit = nullptr;
  ParameterSpec* parameter = nullptr;
  Part part = Part::whole;
  int entry = -1;
};

// See Note [Product chains].
struct Chain {
  std::string_view first;  // of its parameters' names after the unit's; empty: the unit has one product
  std::vector<const StyledParameter*> cut;
};

struct Refusal {
  std::string reason;
  std::string remedy;
};

class StyledParameters {
 public:
  StyledParameters(GraphSpec& graph, const TensorPolicy& policy) : graph_(graph), policy_(policy) {
    for (UnitSpec& unit : graph.units) {
      for (ParameterSpec& parameter : unit.parameters) {
        parameters_.push_back({&unit, &parameter, part_of(unit, parameter), entry_of(parameter.name)});
      }
    }
    for (const StyledParameter& styled : parameters_) {
      const Key key = chain_key(*styled.unit, *styled.parameter);
      Chain& chain = chains_[key];
      chain.first = key.second;
      if (styled.parameter->tp) chain.cut.push_back(&styled);
    }
  }

  void run() {
    for (std::size_t i = 0; i < policy_.styles.size(); ++i) check_matches(policy_.styles[i].first);
    for (const StyledParameter& styled : parameters_) {
      if (styled.entry < 0) continue;
      if (const auto refusal = refusal_of(styled); !refusal.reason.empty()) refuse(styled, refusal);
    }
    for (const auto& [key, chain] : chains_) replicate(chain);
  }

 private:
  using Key = std::pair<const UnitSpec*, std::string_view>;

  int entry_of(std::string_view name) const {
    int entry = -1;
    for (std::size_t i = 0; i < policy_.styles.size(); ++i) {
      if (!matches_style_pattern(policy_.styles[i].first, name)) continue;
      if (entry >= 0) refuse_difference(policy_.styles[static_cast<std::size_t>(entry)], policy_.styles[i], name);
      entry = static_cast<int>(i);
    }
    return entry;
  }

  using Entry = std::pair<std::string, TensorStyle>;
  static void refuse_difference(const Entry& one, const Entry& other, std::string_view parameter) {
    if (one.second == other.second) return;
    throw ConfigError(fmt::format("parallel.plan: \"{}\" makes {} {}, \"{}\" makes it {}", one.first, parameter,
                                  tensor_style_name(one.second), other.first, tensor_style_name(other.second)),
                      {.remedy = "let the patterns of a parameter agree"});
  }

  TensorStyle style(const StyledParameter& styled) const {
    return policy_.styles[static_cast<std::size_t>(styled.entry)].second;
  }
  bool is_replicated(const StyledParameter* styled) const {
    return styled->entry >= 0 && style(*styled) == TensorStyle::replicate;
  }

  Key chain_key(const UnitSpec& unit, const ParameterSpec& parameter) const;
  const Chain& chain_of(const StyledParameter& styled) const {
    return chains_.at(chain_key(*styled.unit, *styled.parameter));
  }
  bool is_whole(const Chain& chain) const {
    return !chain.cut.empty() &&
           std::ranges::all_of(chain.cut, [this](const StyledParameter* styled) { return is_replicated(styled); });
  }

  void check_matches(const std::string& pattern) const;
  [[noreturn]] void refuse(const StyledParameter& styled, const Refusal& refusal) const;
  Refusal refusal_of(const StyledParameter& styled) const;
  Refusal column_refusal(const StyledParameter& styled) const;
  Refusal row_refusal(const StyledParameter& styled) const;
  Refusal sequence_refusal(const StyledParameter& styled) const;
  Refusal replicate_refusal(const StyledParameter& styled) const;

  void replicate(const Chain& chain);
  Refusal half_refusal(const StyledParameter& whole, const Chain& chain) const;
  Refusal token_refusal(const Chain& chain) const;
  std::vector<ValueSpec*> logits_of(const Chain& chain) const;

  GraphSpec& graph_;
  const TensorPolicy& policy_;
  std::vector<StyledParameter> parameters_;
  std::map<Key, Chain> chains_;
};

StyledParameters::Key StyledParameters::chain_key(const UnitSpec& unit, const ParameterSpec& parameter) const {
  if (parameter.tp && parameter.shape.size() == 1 && weight_of(unit, parameter) == nullptr) {
    for (const std::string& name : unit.borrowed) {
      const ParameterSpec& lent = graph_.parameter(name);
      if (lent.tp && lent.table) return chain_key(graph_.units[static_cast<std::size_t>(graph_.owner(name))], lent);
    }
  }
  const std::string_view rest = after_unit(unit, parameter.name);
  const std::size_t dot = rest.find('.');
  return {&unit, dot == std::string_view::npos ? std::string_view() : rest.substr(0, dot)};
}

// Names that patterns may have: what follows the unit's name, without "weight" and "bias".
void StyledParameters::check_matches(const std::string& pattern) const {
  std::vector<std::string> names;
  for (const StyledParameter& styled : parameters_) {
    if (matches_style_pattern(pattern, styled.parameter->name)) return;
    const std::string_view rest = after_unit(*styled.unit, styled.parameter->name);
    const std::size_t dot = rest.rfind('.');
    const std::string name(dot == std::string_view::npos ? std::string_view(styled.unit->name) : rest.substr(0, dot));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  throw ConfigError(fmt::format("parallel.plan: \"{}\" matches no parameter of {}", pattern, graph_.name),
                    {.remedy = did_you_mean(pattern, names)});
}

void StyledParameters::refuse(const StyledParameter& styled, const Refusal& refusal) const {
  const auto& [pattern, style] = policy_.styles[static_cast<std::size_t>(styled.entry)];
  throw ConfigError(
      fmt::format("parallel.plan: \"{}\" cannot be {}: {}", pattern, tensor_style_name(style), refusal.reason),
      {.remedy = refusal.remedy});
}

Refusal StyledParameters::refusal_of(const StyledParameter& styled) const {
  switch (style(styled)) {
    case TensorStyle::column:
      return column_refusal(styled);
    case TensorStyle::row:
      return row_refusal(styled);
    case TensorStyle::sequence:
      return sequence_refusal(styled);
    case TensorStyle::replicate:
      return replicate_refusal(styled);
  }
  return {};
}

bool is_never_cut(Part part) {
  return part == Part::tokens || part == Part::heads || part == Part::whole;
}

Refusal whole_refusal(const std::string& name) {
  return {name + " is used with all channels on every rank, and nothing around it is cut to match",
          "name the weight that is meant, or leave it out of parallel.plan"};
}

Refusal StyledParameters::column_refusal(const StyledParameter& styled) const {
  const std::string& name = styled.parameter->name;
  if (styled.part == Part::column) return {};
  if (styled.part == Part::table) {
    return {name +
                " is a table, which column cuts over channels: each rank would look up a part of every vector, and "
                "what follows needs all of it",
            "use row, which cuts it over its entries (the default), or replicate"};
  }
  if (is_never_cut(styled.part)) return whole_refusal(name);
  const Chain& chain = chain_of(styled);
  const auto before = std::ranges::find(chain.cut, Part::column, &StyledParameter::part);
  return {fmt::format("{} would need all channels of its input, and {} gives each rank its own part of them", name,
                      before == chain.cut.end() ? "what precedes it" : (*before)->parameter->name),
          "use row (the default)"};
}

Refusal StyledParameters::row_refusal(const StyledParameter& styled) const {
  const std::string& name = styled.parameter->name;
  if (styled.part == Part::row || styled.part == Part::row_bias || styled.part == Part::table) return {};
  if (is_never_cut(styled.part)) return whole_refusal(name);
  const Chain& chain = chain_of(styled);
  const auto after = std::ranges::find(chain.cut, Part::row, &StyledParameter::part);
  const std::string also = after == chain.cut.end()
                               ? ""
                               : fmt::format(", and {} reads its output cut over channels", (*after)->parameter->name);
  return {fmt::format("{} would need its input cut over channels, and that is whole on every rank{}", name, also),
          "use column (the default)"};
}

Refusal StyledParameters::sequence_refusal(const StyledParameter& styled) const {
  const std::string& name = styled.parameter->name;
  switch (styled.part) {
    case Part::row_bias:
    case Part::tokens:
      if (policy_.sequence_parallel) return {};
      return {fmt::format("{} works on all tokens while sequence parallelism is off", name),
              "set parallel.sequence_parallel to true, or leave it out of parallel.plan"};
    case Part::table:
      return {name + " is a table that is cut over its entries, so every rank looks up all tokens",
              "use row (the default)"};
    case Part::column:
    case Part::row:
      return {name + " is cut over channels and multiplies all tokens",
              styled.part == Part::column ? "use column (the default)" : "use row (the default)"};
    case Part::heads:
      return {name + " works on heads, which have all tokens", "leave it out of parallel.plan"};
    case Part::whole:
      break;
  }
  return {name + " works on values without a sequence", "leave it out of parallel.plan"};
}

Refusal StyledParameters::replicate_refusal(const StyledParameter& styled) const {
  const bool tokens = styled.part == Part::tokens || styled.part == Part::row_bias;
  if (!tokens || !policy_.sequence_parallel || is_whole(chain_of(styled))) return {};
  return {styled.parameter->name +
              " sees only a rank's own tokens under sequence parallelism, so its gradient is a partial sum",
          "use sequence (the default), or set parallel.sequence_parallel to false"};
}

void StyledParameters::replicate(const Chain& chain) {
  const auto whole = std::ranges::find_if(chain.cut, [this](const StyledParameter* p) { return is_replicated(p); });
  if (whole == chain.cut.end()) return;
  if (!is_whole(chain)) refuse(**whole, half_refusal(**whole, chain));
  const std::vector<ValueSpec*> logits = logits_of(chain);
  if (policy_.sequence_parallel) {
    if (const auto refusal = token_refusal(chain); !refusal.reason.empty()) refuse(**whole, refusal);
  }
  for (const StyledParameter* styled : chain.cut) {
    styled->parameter->tp.reset();
    styled->parameter->partial_under_sequence_parallel = policy_.sequence_parallel;
  }
  for (ValueSpec* value : logits) value->tp.reset();
}

// Why one of a chain cannot be whole alone.
Refusal StyledParameters::half_refusal(const StyledParameter& whole, const Chain& chain) const {
  std::vector<std::string> names;
  for (const StyledParameter* styled : chain.cut) names.push_back(styled->parameter->name);
  const std::string remedy = fmt::format("replicate all of {}, or none", fmt::join(names, ", "));
  const auto cut = [&](Part part) {
    const auto found = std::ranges::find_if(
        chain.cut, [&](const StyledParameter* styled) { return styled->part == part && !is_replicated(styled); });
    return found == chain.cut.end() ? nullptr : (*found)->parameter;
  };
  const std::string& name = whole.parameter->name;
  if (const auto* row = cut(Part::row); row != nullptr && whole.part == Part::column) {
    return {fmt::format("{} would give every rank all channels while {} sums parts over tp: the sum would be tp times "
                        "too large",
                        name, row->name),
            remedy};
  }
  if (const auto* column = cut(Part::column); column != nullptr && whole.part == Part::row) {
    return {fmt::format("{} would take all channels while {} gives each rank its own part of them", name, column->name),
            remedy};
  }
  const auto other = std::ranges::find_if(chain.cut, [this](const StyledParameter* p) { return !is_replicated(p); });
  return {fmt::format("{} would be whole while {}, used with it, is cut", name, (*other)->parameter->name), remedy};
}

// Why a whole chain cannot work on each rank's own tokens.
Refusal StyledParameters::token_refusal(const Chain& chain) const {
  const std::string remedy = "leave it out of parallel.plan, or set parallel.sequence_parallel to false";
  const std::string& name = chain.cut.front()->parameter->name;
  const bool has_heads =
      std::ranges::any_of(chain.cut, [](const StyledParameter* styled) { return styled->parameter->tp->granule > 1; });
  if (has_heads || chain.first.starts_with("att")) {
    return {fmt::format("{} is a part of attention, which needs all tokens, and a whole one would see only a rank's "
                        "own under sequence parallelism",
                        name),
            remedy};
  }
  if (logits_of(chain).empty()) return {};
  return {fmt::format("{} makes {}, which are of all tokens, and a whole one would see only a rank's own under "
                      "sequence parallelism",
                      name, logits_of(chain).front()->name),
          remedy};
}

// The cut values that units write with the chain's parameters.
std::vector<ValueSpec*> StyledParameters::logits_of(const Chain& chain) const {
  std::vector<ValueSpec*> logits;
  for (const StyledParameter* styled : chain.cut) {
    for (const int user : graph_.users(styled->parameter->name)) {
      for (const std::string& output : graph_.units[static_cast<std::size_t>(user)].outputs) {
        ValueSpec& value = *std::ranges::find(graph_.values, output, &ValueSpec::name);
        if (value.tp && std::ranges::find(logits, &value) == logits.end()) logits.push_back(&value);
      }
    }
  }
  return logits;
}

// The table that a head borrows; null when every head has a weight of its own.
const ParameterSpec* tied_table(const GraphSpec& graph) {
  for (const UnitSpec& unit : graph.units) {
    for (const std::string& name : unit.borrowed) {
      const ParameterSpec& lent = graph.parameter(name);
      if (lent.tp && lent.table) return &lent;
    }
  }
  return nullptr;
}

// See Note [Tied heads].
TensorPolicy without_tied_head(const GraphSpec& graph, TensorPolicy policy) {
  const auto head = std::ranges::find_if(
      policy.styles, [](const auto& entry) { return entry.first == "lm_head" || entry.first == "lm_head.weight"; });
  const ParameterSpec* table = tied_table(graph);
  if (head == policy.styles.end() || table == nullptr) return policy;
  const TensorStyle style = head->second;
  const auto of_table = std::ranges::find_if(
      policy.styles, [&](const auto& entry) { return matches_style_pattern(entry.first, table->name); });
  const bool named = of_table != policy.styles.end();
  const bool over_channels = style == TensorStyle::row && named && of_table->second == TensorStyle::column;
  const bool over_entries = style == TensorStyle::column && (!named || of_table->second == TensorStyle::row);
  if (!over_channels && !over_entries) return policy;
  if (over_channels) of_table->second = TensorStyle::row;
  policy.styles.erase(head);
  return policy;
}

}  // namespace

void apply_tensor_styles(GraphSpec& graph, const TensorPolicy& policy) {
  if (policy.styles.empty()) return;
  const TensorPolicy own = without_tied_head(graph, policy);
  StyledParameters(graph, own).run();
}

}  // namespace orthant
