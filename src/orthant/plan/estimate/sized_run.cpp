#include "orthant/plan/estimate/sized_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "orthant/base/index.h"
#include "orthant/plan/estimate/operation_price.h"
#include "orthant/program/unit_programs.h"

namespace orthant {
namespace {

// Runs a program as the executor does.
class Executed {
 public:
  Executed(const Program& program, const UnitSizes& sizes, const PlanSettings& settings, const ContextPlace& place)
      : program_(program), prices_(program, sizes, settings, place) {
    for (const auto& operation : program.forward) {
      for (const int value : operation.out) of_forward_.insert(value);
    }
  }

  // To the worst moment. What is left is what backward needs. `makes_gradients`: given the gradient of the loss.
  double forward(bool makes_gradients = false) {
    for (const int value : program_.inputs) prices_.value(value) = prices_.take(value);
    Held seed;  // the executor's, to the end
    if (makes_gradients) {
      seed = prices_.take(program_.seeds.front());
      prices_.value(program_.seeds.front()) = seed;
    }
    const double peak = run(program_.forward);
    for (const int value : program_.outputs) {
      if (std::ranges::find(program_.kept, value) == program_.kept.end()) prices_.value(value).reset();
    }
    return peak;
  }

  // With the gradients of the outputs at hand, and without those of the inputs afterwards.
  double backward(const std::vector<Operation>& list, const std::vector<int>& left) {
    for (const int seed : program_.seeds) {
      if (seed >= 0) prices_.value(seed) = prices_.take(seed);
    }
    run(list);
    const double peak = prices_.handed_back(program_.gradients);
    for (const auto* values : {&program_.seeds, &program_.gradients}) {
      for (const int value : *values) {
        if (value >= 0 && std::ranges::find(left, value) == left.end()) prices_.value(value).reset();
      }
    }
    return peak;
  }

  double run(const std::vector<Operation>& list) {
    prices_.memory.reset_peak();
    for (const auto& operation : list) {
      const double before = prices_.moved;
      prices_.run(operation);
      // What is made again is priced as a forward of its own.
      if (&list != &program_.forward && &list != &program_.weight_part && is_made_again(operation)) {
        prices_.moved = before;
      }
      prices_.free(operation.frees);
    }
    return prices_.memory.peak();
  }

  double now() const { return prices_.memory.now(); }
  double drawn() { return std::exchange(prices_.drawn, 0); }
  double moved() { return std::exchange(prices_.moved, 0); }

 private:
  bool is_made_again(const Operation& operation) const {
    return !operation.name.ends_with("_back") &&
           std::ranges::any_of(operation.out, [&](int value) { return of_forward_.contains(value); });
  }

  const Program& program_;
  std::set<int> of_forward_;
  OperationPrices prices_;
};

}  // namespace

Remake remake_of(const PlanSettings& settings) {
  const bool op = settings.recompute == PlanRecompute::op;
  return remake_of(op ? Recompute::none : static_cast<Recompute>(settings.recompute), settings.remade);
}

SizedRun run_sized(const Program& program, const Program* in_forward, const UnitSizes& sizes,
                   const PlanSettings& settings, const ContextPlace& place) {
  SizedRun found;
  {
    Executed whole(program, sizes, settings, place);
    found.forward = whole.forward();
    found.forward_drawn = whole.drawn();
    found.forward_moved = whole.moved();
    found.kept = whole.now();
    found.backward = whole.backward(program.both, {});
    found.backward_moved = whole.moved();
  }
  Executed split(program, sizes, settings, place);
  split.forward();
  split.drawn();
  found.inputs = split.backward(program.input_part, program.deferred);
  found.inputs_drawn = split.drawn();
  found.deferred = split.now();
  split.moved();
  found.weights = split.run(program.weight_part);
  found.weights_moved = split.moved();
  found.weights_drawn = split.drawn();
  if (in_forward != nullptr) {
    Executed run(*in_forward, sizes, settings, place);
    SizedRun::InForward made;
    made.forward = run.forward(/*makes_gradients=*/true);
    made.kept = run.now();
    made.backward = run.backward(in_forward->both, {});
    found.in_forward = made;
  }
  return found;
}

SizedRun most_sized(const Program& program, const Program* in_forward, const UnitSizes& sizes,
                    const PlanSettings& settings, const ContextSharing& sharing) {
  SizedRun most = run_sized(program, in_forward, sizes, settings, {sharing, 0});
  if (!std::ranges::any_of(program.forward, shares_rows)) return most;
  // A ring's first rank receives most, its last one sends most.
  const int last = sharing.degree - 1;
  for (const int c : {last / 2, last}) {
    const SizedRun other = run_sized(program, in_forward, sizes, settings, {sharing, c});
    for (const auto moment : {&SizedRun::kept, &SizedRun::deferred, &SizedRun::forward, &SizedRun::backward,
                              &SizedRun::inputs, &SizedRun::weights}) {
      most.*moment = std::max(most.*moment, other.*moment);
    }
  }
  return most;
}

SizedRun run_sized(const GraphSpec& resolved, const UnitSpec& unit, const PlanSettings& settings, int coordinate) {
  if (!unit.body || unit.runs_module()) return {};
  const auto index = to_index(resolved.unit_index(unit.name));
  UnitPrograms programs(resolved, remake_of(settings));
  UnitPrograms in_forward(resolved, remake_of(settings), {.gradients_in_forward = true});
  UnitSizes sizes = unit_sizes(resolved, unit, resolved.tensor.value_or(TensorSharing{}));
  sizes.compute = settings.compute;
  return run_sized(programs[index], unit.logits ? &in_forward[index] : nullptr, sizes, settings,
                   {resolved.context, coordinate});
}

}  // namespace orthant
