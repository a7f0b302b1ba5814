#include "orthant/program/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "orthant/base/error.h"
#include "orthant/base/index.h"

namespace orthant {
namespace {

// The unit's parameters that a body's one stands for: its own of that name or label, or a borrowed one, whose name ends
// so or is just that.
std::vector<const ParameterSpec*> members(const GraphSpec& graph, const UnitSpec& unit, const BodyParameter& use) {
  std::vector<const ParameterSpec*> found;
  for (const auto& parameter : unit.parameters) {
    if (use.joined ? parameter.joined == use.name : parameter.name == fmt::format("{}.{}", unit.name, use.name)) {
      found.push_back(&parameter);
    }
  }
  for (const auto& name : found.empty() ? unit.borrowed : std::vector<std::string>()) {
    const auto& parameter = graph.parameter(name);
    const bool named = name == use.name || name.ends_with("." + use.name);
    if (use.joined ? parameter.joined == use.name : named) found.push_back(&parameter);
  }
  if (found.empty()) throw InternalError(fmt::format("unit {} has no parameter \"{}\"", unit.name, use.name));
  return found;
}

ParameterAt parameter_at(const GraphSpec& graph, const UnitSpec& unit, const BodyParameter& use, int degree) {
  const auto parts = members(graph, unit, use);
  ParameterAt at{.shape = parts.front()->shape, .trainable = parts.front()->trainable};
  for (std::size_t i = 1; i < parts.size(); ++i) at.shape[0] += parts[i]->shape[0];
  if (const auto& expert = parts.front()->expert) {
    at.experts = expert->count;
    at.expert_degree = graph.expert_degree;
  }
  const auto& split = parts.front()->tp;
  if (!split || degree == 1) return at;
  at.cut_dim = split->dim;
  at.cut = {Axis::tp, split->granule, split->blocks};
  if (parts.size() > 1 && split->dim == 0) {
    for (const auto* part : parts) at.cut.blocks.push_back(part->shape[0]);
  }
  return at;
}

// Where a value lies between units, from its dims within one.
ValuePlace edge_placement(const ValueSpec& value, std::vector<Dim> dims, const TensorSharing& sharing) {
  ValuePlace at{std::move(dims)};
  if (sharing.degree == 1 || at.dims.empty()) return at;
  if (value.sequence_sharded && sharing.sequence_parallel) at.dims[0].cuts = {{Axis::tp}};
  if (value.tp && sharing.loss_parallel) at.dims.back().cuts = {{Axis::tp, value.tp->granule, value.tp->blocks}};
  return at;
}

// What tells a value from the one that it was exchanged from.
const char* form_name(ExchangeSpec::Kind kind) {
  switch (kind) {
    case ExchangeSpec::Kind::sum:
      return ".summed";
    case ExchangeSpec::Kind::gather:
      return ".all";
    case ExchangeSpec::Kind::scatter:
      return ".own";
    default:
      break;
  }
  return "";
}

class Placer {
 public:
  Placer(const GraphSpec& graph, const UnitSpec& unit, const Body& body, const TensorSharing& sharing)
      : graph_(graph), unit_(unit), body_(body), sharing_(sharing) {
    for (const auto& use : body.parameters)
      placed_.parameters.push_back({use, parameter_at(graph, unit, use, sharing.degree)});
    for (const auto& value : body.values) placed_.values.push_back({value.name, {value.dims}, value.number});
    placed_.inputs = body.inputs;
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      auto& value = placed_.values[to_index(body.inputs[i])];
      value.at = edge_placement(graph.value(unit.inputs[i]), value.at.dims, sharing);
    }
    made_by_.resize(body.values.size(), -1);
  }

  PlacedBody place() {
    for (const auto& operation : body_.operations) {
      One one(*this, operation);
      op_rule(operation.name).place(one);
      one.finish();
    }
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      const int value = body_.outputs[i];
      const auto& dims = body_.values[to_index(value)].dims;
      placed_.outputs.push_back(version(value, edge_placement(graph_.value(unit_.outputs[i]), dims, sharing_), false));
    }
    return std::move(placed_);
  }

 private:
  bool cuts_tokens() const { return sharing_.degree > 1 && sharing_.sequence_parallel; }

  bool rests_cut(const std::vector<Dim>& dims) const {
    return cuts_tokens() && !dims.empty() && dims[0].sym == Sym::tokens;
  }

  // The value as it lies now, or in the form asked for, made by an exchange unless it was before.
  int version(int value, const ValuePlace& wanted, bool again) {
    for (const int found : versions_[value]) {
      if (placed_.values[to_index(found)].at == wanted) return found;
    }
    const auto& given = placed_.values[to_index(value)].at;
    if (given == wanted) return value;
    Operation exchange{.name = std::string(kExchange), .in = {value}};
    ExchangeSpec spec;
    if (!given.partial.empty()) {
      spec.kind = wanted.cuts_tokens() ? ExchangeSpec::Kind::scatter : ExchangeSpec::Kind::sum;
      // A sum is named by the parameters whose summands it adds.
      const int maker = made_by_[to_index(value)];
      if (maker >= 0) exchange.parameters = subjects_[to_index(maker)];
    } else if (given.cuts_tokens() && !wanted.cuts_tokens()) {
      spec.kind = ExchangeSpec::Kind::gather;
    } else if (!given.dims.back().cuts.empty() && wanted.dims.back().cuts.empty()) {
      spec.kind = ExchangeSpec::Kind::gather;
      spec.dim = 1;
    } else {
      throw InternalError(fmt::format("unit {}: no exchange gives value {} the form that is wanted", unit_.name,
                                      placed_.values[to_index(value)].name));
    }
    if (again) exchange.attributes.set("again", 1);
    exchange.exchange = spec;
    const int made = static_cast<int>(placed_.values.size());
    const auto& source = placed_.values[to_index(value)];
    placed_.values.push_back({source.name + form_name(spec.kind), wanted, source.number});
    made_by_.push_back(-1);
    exchange.out = {made};
    placed_.operations.push_back(std::move(exchange));
    versions_[value].push_back(made);
    return made;
  }

  int wanted_version(int value, Wanted wanted, bool again) {
    ValuePlace form = placed_.values[to_index(value)].at;
    const bool whole = wanted == Wanted::all_tokens || !rests_cut(form.dims);
    if (!form.dims.empty() && form.dims[0].sym == Sym::tokens) {
      if (whole) {
        form.dims[0].cuts.clear();
      } else if (!form.partial.empty()) {
        form.dims[0].cuts = {{Axis::tp}};
      }
    }
    form.partial = {};
    return version(value, form, again);
  }

  // The operation whose turn it is.
  class One : public Placing {
   public:
    One(Placer& placer, const Operation& recorded) : placer_(placer), made_(recorded) {
      for (int& value : made_.in) value = placer.current(value);
    }
    const Operation& operation() const override { return made_; }
    const ValuePlace& input(std::size_t i) const override { return placer_.placed_.values[to_index(made_.in[i])].at; }
    const ParameterAt& parameter(std::size_t i) const override {
      return placer_.placed_.parameters[to_index(made_.parameters[i])].at;
    }
    bool rests_cut(std::size_t i) const override { return placer_.rests_cut(input(i).dims); }
    void want(std::size_t i, Wanted wanted, bool again) override {
      made_.in[i] = placer_.wanted_version(made_.in[i], wanted, again);
      // A sum takes the place of its summands for everybody.
      placer_.completed(made_.in[i]);
    }
    const std::vector<Dim>& recorded(std::size_t output) const override {
      return placer_.body_.values[to_index(made_.out[output])].dims;
    }
    void give(std::size_t output, ValuePlace placement) override {
      placer_.placed_.values[to_index(made_.out[output])].at = std::move(placement);
    }
    void set(std::string attribute, std::int64_t value) override { made_.attributes.set(std::move(attribute), value); }

    void drop_parameters() override { made_.parameters.clear(); }
    void pass_on() override {
      placer_.current_[made_.out.front()] = made_.in.front();
      passed_on_ = true;
    }
    void exchange(const ExchangeSpec& spec) override {
      made_.name = kExchange;
      made_.exchange = spec;
      made_.parameters.clear();
    }

    void finish() {
      if (passed_on_) return;
      placer_.made(made_);
      placer_.placed_.operations.push_back(std::move(made_));
    }

   private:
    Placer& placer_;
    Operation made_;
    bool passed_on_ = false;
  };

  // What stands for a recorded value by now.
  int current(int value) const {
    const auto found = current_.find(value);
    return found == current_.end() ? value : found->second;
  }

  void completed(int version) {
    if (placed_.operations.empty()) return;
    const auto& last = placed_.operations.back();
    if (last.name != kExchange || last.out.front() != version) return;
    if (last.exchange->kind != ExchangeSpec::Kind::gather && !last.exchange->moves_rows())
      current_[last.in.front()] = version;
  }

  // Notes who made a value, and which parameters its summands come from.
  void made(const Operation& operation) {
    std::vector<int> subjects;
    for (const int parameter : operation.parameters) {
      if (placed_.parameters[to_index(parameter)].at.cut_dim >= 0) subjects.push_back(parameter);
    }
    if (subjects.empty()) {
      for (const int value : operation.in) {
        if (value < 0 || placed_.values[to_index(value)].at.partial.empty()) continue;
        if (const int maker = made_by_[to_index(value)]; maker >= 0) subjects = subjects_[to_index(maker)];
      }
    }
    for (const int value : operation.out) {
      if (value >= 0) made_by_[to_index(value)] = static_cast<int>(subjects_.size());
    }
    subjects_.push_back(std::move(subjects));
  }

  const GraphSpec& graph_;
  const UnitSpec& unit_;
  const Body& body_;
  TensorSharing sharing_;
  PlacedBody placed_;
  std::map<int, std::vector<int>> versions_;
  std::map<int, int> current_;
  std::vector<int> made_by_;                // per value: into subjects_; -1: nobody here
  std::vector<std::vector<int>> subjects_;  // parameters
};

}  // namespace

PlacedBody place_body(const GraphSpec& graph, const UnitSpec& unit, const Body& body, const TensorSharing& sharing) {
  return Placer(graph, unit, body, sharing).place();
}

}  // namespace orthant
