#include "orthant/graph/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

constexpr std::array<std::string_view, 3> kRecomputeNames = {"none", "selective", "full"};

template <typename Named>
auto named(const std::vector<Named>& items, std::string_view name) {
  return std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The walk behind check(): units in order, with what the units before them have written and own.
class Checker {
 public:
  explicit Checker(const GraphSpec& spec) : spec_(spec) {}

  void run() {
    for (const auto& field : spec_.batch_fields) {
      claim(values_, field.name, "batch field", "value");
      written_.emplace(field.name, "");
    }
    for (const auto& value : spec_.values) claim(values_, value.name, "value", "value");
    std::set<std::string> unit_names;
    for (const auto& unit : spec_.units) claim(unit_names, unit.name, "unit", "unit");
    for (const auto& unit : spec_.units) {
      read(unit);
      write(unit);
      own(unit);
    }
    for (const auto& value : spec_.values) {
      if (written_.contains(value.name)) continue;
      throw ConfigError(fmt::format("{}: no unit writes value \"{}\"", graph(), value.name),
                        {.remedy = "list it in the outputs of the unit that computes it, or remove it"});
    }
  }

 private:
  std::string graph() const { return fmt::format("graph \"{}\"", spec_.name); }

  std::string at(const UnitSpec& unit) const { return fmt::format("{}, unit \"{}\"", graph(), unit.name); }

  void claim(std::set<std::string>& taken, const std::string& name, std::string_view what, std::string_view among) {
    if (name.empty()) {
      throw ConfigError(fmt::format("{}: a {} has no name", graph(), what), {.remedy = "name it"});
    }
    if (!taken.insert(name).second) {
      throw ConfigError(fmt::format("{}: two {}s are named \"{}\"", graph(), among, name),
                        {.remedy = fmt::format("rename one {}", what)});
    }
  }

  void read(const UnitSpec& unit) const {
    for (const auto& input : unit.inputs) {
      if (std::count(unit.inputs.begin(), unit.inputs.end(), input) > 1) {
        throw ConfigError(fmt::format("{} reads \"{}\" twice", at(unit), input), {.remedy = "name each input once"});
      }
      if (written_.contains(input)) continue;
      const bool later = std::any_of(spec_.units.begin(), spec_.units.end(),
                                     [&](const auto& other) { return contains(other.outputs, input); });
      if (later) {
        throw ConfigError(
            fmt::format("{} reads \"{}\", which no earlier unit writes", at(unit), input),
            {.remedy = fmt::format("list unit \"{}\" after \"{}\", which writes it", unit.name, writer(input))});
      }
      std::vector<std::string> known;
      for (const auto& [name, by] : written_) known.push_back(name);
      throw ConfigError(fmt::format("{} reads \"{}\", which nobody writes", at(unit), input),
                        {.remedy = did_you_mean(input, known)});
    }
  }

  void write(const UnitSpec& unit) {
    if (unit.is_loss && unit.outputs.empty()) {
      throw ConfigError(fmt::format("{} is a loss and has no output", at(unit)),
                        {.remedy = "give it the value of the loss as its first output"});
    }
    if (!unit.auxiliary_loss.empty() && !contains(unit.outputs, unit.auxiliary_loss)) {
      throw ConfigError(
          fmt::format("{} has an auxiliary loss \"{}\", which is no output of it", at(unit), unit.auxiliary_loss),
          {.remedy = "list it among the outputs"});
    }
    for (const auto& output : unit.outputs) {
      if (spec_.is_batch_field(output)) {
        throw ConfigError(fmt::format("{} writes batch field \"{}\"", at(unit), output),
                          {.remedy = "give the output a name of its own"});
      }
      if (!values_.contains(output)) {
        throw ConfigError(fmt::format("{} writes \"{}\", which is no value of the graph", at(unit), output),
                          {.remedy = "add it to the values with its shape"});
      }
      const auto [first, added] = written_.emplace(output, unit.name);
      if (added) continue;
      throw ConfigError(fmt::format("{} writes \"{}\", which unit \"{}\" writes too", at(unit), output, first->second),
                        {.remedy = "give each output one writer"});
    }
  }

  void own(const UnitSpec& unit) {
    for (const auto& name : unit.borrowed) {
      if (parameters_.contains(name)) continue;
      throw ConfigError(fmt::format("{} borrows parameter \"{}\", which no earlier unit owns", at(unit), name),
                        {.remedy = "list the owner first, or let this unit own it"});
    }
    for (const auto& parameter : unit.parameters) claim(parameters_, parameter.name, "parameter", "parameter");
  }

  const std::string& writer(const std::string& value) const {
    const auto found = std::find_if(spec_.units.begin(), spec_.units.end(),
                                    [&](const auto& unit) { return contains(unit.outputs, value); });
    return found->name;
  }

  const GraphSpec& spec_;
  std::set<std::string> values_;                // batch fields and values
  std::map<std::string, std::string> written_;  // value -> its unit so far; "" for batch fields
  std::set<std::string> parameters_;            // owned so far
};

}  // namespace

std::int64_t num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const auto size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      throw ConfigError(fmt::format("a tensor of shape [{}] cannot exist", fmt::join(shape, ", ")),
                        {.remedy = "use sizes of at least 0 whose product is below 2^63"});
    }
  }
  return count;
}

std::string_view recompute_name(Recompute mode) {
  return kRecomputeNames[static_cast<std::size_t>(mode)];
}

Recompute parse_recompute(std::string_view text) {
  for (const auto mode : kRecomputeModes) {
    if (recompute_name(mode) == text) return mode;
  }
  const std::vector<std::string> names(kRecomputeNames.begin(), kRecomputeNames.end());
  throw ConfigError(fmt::format("unknown recompute mode \"{}\"", text), {.remedy = did_you_mean(text, names)});
}

bool UnitSpec::runs_module() const {
  return body && std::ranges::find(body->operations, "module", &Operation::name) != body->operations.end();
}

std::int64_t UnitSpec::num_experts() const {
  if (!body) return 0;
  const auto route = std::ranges::find(body->operations, "route", &Operation::name);
  return route == body->operations.end() ? 0 : body->values[static_cast<std::size_t>(route->out.back())].dims[0].factor;
}

std::int64_t UnitSpec::num_parameters() const {
  std::int64_t count = 0;
  for (const auto& parameter : parameters) count += num_elements(parameter.shape);
  return count;
}

void GraphSpec::check() const {
  Checker(*this).run();
}

const UnitSpec& GraphSpec::unit(std::string_view unit_name) const {
  return units[static_cast<std::size_t>(unit_index(unit_name))];
}

int GraphSpec::unit_index(std::string_view unit_name) const {
  const auto found = named(units, unit_name);
  if (found != units.end()) return static_cast<int>(found - units.begin());
  std::vector<std::string> names;
  for (const auto& unit : units) names.push_back(unit.name);
  throw ConfigError(fmt::format("graph \"{}\" has no unit \"{}\"", name, unit_name),
                    {.remedy = did_you_mean(unit_name, names)});
}

const ValueSpec& GraphSpec::value(std::string_view value_name) const {
  for (const auto* list : {&values, &batch_fields}) {
    const auto found = named(*list, value_name);
    if (found != list->end()) return *found;
  }
  throw InternalError(fmt::format("graph \"{}\" has no value \"{}\"", name, value_name));
}

bool GraphSpec::is_batch_field(std::string_view value_name) const {
  return named(batch_fields, value_name) != batch_fields.end();
}

int GraphSpec::producer(std::string_view value_name) const {
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (contains(units[i].outputs, value_name)) return static_cast<int>(i);
  }
  if (is_batch_field(value_name)) return -1;
  throw InternalError(fmt::format("graph \"{}\": nobody writes value \"{}\"", name, value_name));
}

std::vector<int> GraphSpec::consumers(std::string_view value_name) const {
  std::vector<int> readers;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (contains(units[i].inputs, value_name)) readers.push_back(static_cast<int>(i));
  }
  return readers;
}

std::string GraphSpec::tokens_of(const UnitSpec& unit) const {
  for (const auto* names : {&unit.inputs, &unit.outputs}) {
    for (const std::string& value_name : *names) {
      if (const auto& field = value(value_name).tokens_of; !field.empty()) return field;
    }
  }
  return {};
}

const ParameterSpec& GraphSpec::parameter(std::string_view parameter_name) const {
  return *named(units[static_cast<std::size_t>(owner(parameter_name))].parameters, parameter_name);
}

int GraphSpec::owner(std::string_view parameter_name) const {
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (named(units[i].parameters, parameter_name) != units[i].parameters.end()) return static_cast<int>(i);
  }
  throw InternalError(fmt::format("graph \"{}\" has no parameter \"{}\"", name, parameter_name));
}

std::vector<int> GraphSpec::users(std::string_view parameter_name) const {
  const int owning = owner(parameter_name);
  std::vector<int> indices;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const int index = static_cast<int>(i);
    if (index == owning || contains(units[i].borrowed, parameter_name)) indices.push_back(index);
  }
  return indices;
}

std::int64_t GraphSpec::num_parameters() const {
  std::int64_t count = 0;
  for (const auto& unit : units) count += unit.num_parameters();
  return count;
}

std::vector<std::string> GraphSpec::losses() const {
  std::vector<std::string> names;
  for (const auto& unit : units) {
    if (unit.is_loss && !unit.outputs.empty()) names.push_back(unit.outputs.front());
    if (!unit.auxiliary_loss.empty()) names.push_back(unit.auxiliary_loss);
  }
  return names;
}

}  // namespace orthant
