#include "orthant/program/differentiate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/index.h"

namespace orthant {
namespace {

class Differentiator : public Deriving {
 public:
  Differentiator(PlacedBody& body, const ProgramOptions& options) : body_(body), options_(options) {
    find_needs();
    for (const auto& operation : body.operations) {
      if (is_gather(operation) || moves_rows(operation)) holds_summands_.insert(operation.out.front());
      if (operation.name == kExchange || !op_rule(operation.name).passes_summands) continue;
      holds_summands_.insert(operation.out.begin(), operation.out.end());
    }
    for (const int output : body.outputs) {
      // A loss is the unit's first output or a value without dims; every output may have a gradient.
      if (!needs_[to_index(output)]) {
        made_.seeds.push_back(-1);
        continue;
      }
      const int seed = new_gradient(output);
      gradients_[output] = seed;
      made_.seeds.push_back(seed);
    }
  }

  Differentiated differentiate() {
    for (origin_ = static_cast<int>(body_.operations.size()) - 1; origin_ >= 0; --origin_) {
      operation_ = body_.operations[to_index(origin_)];
      if (std::ranges::none_of(operation_.out, [&](int v) { return v >= 0 && needs_[to_index(v)]; })) continue;
      if (operation_.name == kExchange) {
        undo_exchange();
      } else if (operation_.name == "head_loss" && options_.gradients_in_forward) {
        derive_in_forward();
      } else if (const auto& rule = op_rule(operation_.name); rule.derive != nullptr) {
        rule.derive(*this);
      }
    }
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      const auto found = gradients_.find(body_.inputs[i]);
      made_.gradients.push_back(options_.needs[i] && found != gradients_.end() ? found->second : -1);
    }
    drop_unread_exchanges();
    return std::move(made_);
  }

  const Operation& operation() const override { return operation_; }
  const ValuePlace& placement(int value) const override { return body_.values[to_index(value)].at; }
  const ParameterAt& parameter(std::size_t i) const override {
    return body_.parameters[to_index(operation_.parameters[i])].at;
  }

  int gradient(std::size_t output) override {
    const auto found = gradients_.find(operation_.out[output]);
    return found == gradients_.end() ? -1 : found->second;
  }

  int resting_gradient(std::size_t output) override {
    const auto found = resting_.find(operation_.out[output]);
    return found == resting_.end() ? gradient(output) : found->second;
  }

  bool needs(std::size_t input) const override {
    return operation_.in[input] >= 0 && needs_[to_index(operation_.in[input])];
  }

  int new_gradient(int like, bool partial) override {
    ProgramValue value = body_.values[to_index(like)];
    value.name = "d." + value.name + (partial ? ".part" : "");
    value.at.partial = partial ? AxisSet(Axis::tp) : AxisSet();
    body_.values.push_back(std::move(value));
    return static_cast<int>(body_.values.size()) - 1;
  }
  int new_gradient(int like) { return new_gradient(like, false); }

  void emit(Operation operation, Part part) override {
    made_.operations.push_back({std::move(operation), part, origin_});
  }

  // A summand is summed at once, but of a value that was gathered: the scatter that undoes that sums. Nor of one whose
  // operation passes summands on.
  void contribute(std::size_t input, int gradient) override {
    const int value = operation_.in[input];
    if (!placement(gradient).partial.empty() && !holds_summands_.contains(value)) {
      gradient = exchange(ExchangeSpec::Kind::sum, gradient, new_gradient(value));
    }
    auto [place, first] = gradients_.emplace(value, gradient);
    if (first) return;
    const int sum = new_gradient(value, !placement(gradient).partial.empty());
    emit({.name = "add", .in = {place->second, gradient}, .out = {sum}}, Part::inputs);
    place->second = sum;
  }

  int take_gradient(std::size_t input) override {
    const auto found = gradients_.find(operation_.in[input]);
    if (found == gradients_.end() || !placement(found->second).partial.empty()) return -1;
    const int taken = found->second;
    gradients_.erase(found);
    return taken;
  }

 private:
  static bool is_gather(const Operation& operation) {
    return operation.exchange && operation.exchange->kind == ExchangeSpec::Kind::gather;
  }

  static bool moves_rows(const Operation& operation) { return operation.exchange && operation.exchange->moves_rows(); }

  void find_needs() {
    needs_.resize(body_.values.size());
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) needs_[to_index(body_.inputs[i])] = options_.needs[i];
    for (const auto& operation : body_.operations) {
      const bool exchanged = operation.name == kExchange;  // its parameters name a subject alone
      const bool found = std::ranges::any_of(operation.in, [&](int v) { return v >= 0 && needs_[to_index(v)]; }) ||
                         (!exchanged && std::ranges::any_of(operation.parameters, [&](int p) {
                           return body_.parameters[to_index(p)].at.trainable;
                         }));
      for (const int value : operation.out) needs_[to_index(value)] = found;
    }
  }

  int exchange(ExchangeSpec::Kind kind, int from, int to) {
    Operation made{.name = std::string(kExchange), .in = {from}, .out = {to}};
    made.exchange = ExchangeSpec{.kind = kind};
    if (kind != ExchangeSpec::Kind::gather) made.parameters = subject_of(from);
    if (in_forward_.contains(from)) {
      in_forward_.insert(to);
      made_.in_forward.push_back(std::move(made));
    } else {
      emit(std::move(made), Part::inputs);
    }
    return to;
  }

  // The parameters whose operation made a gradient.
  std::vector<int> subject_of(int gradient) const {
    if (operation_.name != kExchange) return operation_.parameters;
    for (const auto& made : made_.operations) {
      if (std::ranges::find(made.operation.out, gradient) != made.operation.out.end()) return made.operation.parameters;
    }
    return in_forward_parameters_;
  }

  void undo_exchange() {
    const int gy = gradient(0);
    const int input = operation_.in.front();
    if (gy < 0 || !needs_[to_index(input)]) return;
    const auto& spec = *operation_.exchange;
    switch (spec.kind) {
      case ExchangeSpec::Kind::sum:
        gradients_[input] = gy;
        return;
      case ExchangeSpec::Kind::scatter:
        resting_[input] = gy;
        gradients_[input] = exchange(ExchangeSpec::Kind::gather, gy, new_gradient(input));
        return;
      case ExchangeSpec::Kind::to_experts:
        return move_rows(ExchangeSpec::Kind::from_experts, gy);
      case ExchangeSpec::Kind::from_experts:
        return move_rows(ExchangeSpec::Kind::to_experts, gy);
      case ExchangeSpec::Kind::gather:
        break;
    }
    const int gx = new_gradient(input);
    if (!placement(gy).partial.empty()) {
      contribute(0, exchange(ExchangeSpec::Kind::scatter, gy, gx));
      return;
    }
    Operation own{.name = "own_part", .in = {gy}, .out = {gx}};
    own.attributes.set("dim", std::int64_t{spec.dim});
    own.attributes.set("size", placement(gy).dims.back().factor);
    emit(std::move(own), Part::inputs);
    contribute(0, gx);
  }

  // Gradients of rows travel the other way, by the same counts.
  void move_rows(ExchangeSpec::Kind kind, int gy) {
    const int gx = new_gradient(operation_.in.front(), !placement(gy).partial.empty());
    Operation moved = operation_;
    moved.in.front() = gy;
    moved.out = {gx};
    moved.exchange->kind = kind;
    emit(std::move(moved), Part::inputs);
    contribute(0, gx);
  }

  // A gather that undoes a scatter of what only frozen parameters would read.
  void drop_unread_exchanges() {
    std::set<int> read(made_.gradients.begin(), made_.gradients.end());
    auto& all = made_.operations;
    for (std::size_t i = all.size(); i-- > 0;) {
      const Operation& operation = all[i].operation;
      if (operation.name == kExchange && !read.contains(operation.out.front())) {
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        read.insert(operation.in.begin(), operation.in.end());
      }
    }
  }

  // Forward takes the loss's gradient and makes that of its input.
  void derive_in_forward() {
    auto& forward = body_.operations[to_index(origin_)];
    forward.name = "head_loss_gradients";
    forward.in.push_back(gradient(0));
    forward.out[1] = -1;
    forward.out.push_back(-1);
    in_forward_parameters_ = forward.parameters;
    if (!needs(0)) return;
    const int gx = new_gradient(operation_.in[0], parameter(0).cut_dim == 0);
    body_.operations[to_index(origin_)].out.back() = gx;
    in_forward_.insert(gx);
    contribute(0, gx);
  }

  PlacedBody& body_;
  const ProgramOptions& options_;
  Differentiated made_;
  std::vector<bool> needs_;       // per value of forward
  std::set<int> holds_summands_;  // values whose gradients may be summands: a gather made them, or an operation passes
  std::map<int, int> gradients_;  // value -> gradient
  std::map<int, int> resting_;    // value before a scatter -> gradient of what came out of it
  std::set<int> in_forward_;      // gradients that forward makes
  std::vector<int> in_forward_parameters_;
  Operation operation_;
  int origin_ = -1;
};

}  // namespace

Differentiated differentiate(PlacedBody& body, const ProgramOptions& options) {
  return Differentiator(body, options).differentiate();
}

}  // namespace orthant
