#include "orthant/program/lists.h"

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/index.h"

namespace orthant {
namespace {

enum class ListKind { both, inputs, weights };

bool is_exchange(const Operation& operation) {
  return operation.name == kExchange;
}

// Who makes the values of forward, and which of them backward makes again.
class Makers {
 public:
  Makers(const PlacedBody& body, const ProgramOptions& options) : body_(body), options_(options) {
    for (std::size_t i = 0; i < body.operations.size(); ++i) {
      for (const int value : body.operations[i].out) {
        if (value >= 0) maker_[value] = static_cast<int>(i);
      }
    }
  }

  const Operation* of(int value) const {
    const auto found = maker_.find(value);
    return found == maker_.end() ? nullptr : &body_.operations[to_index(found->second)];
  }
  int index(int value) const {
    const auto found = maker_.find(value);
    return found == maker_.end() ? -1 : found->second;
  }

  bool made_again(int value) const {
    const Operation* maker = of(value);
    if (maker == nullptr || decides(*maker)) return false;
    if (options_.remake.all || cheap(*maker)) return true;
    if (!is_named(*maker)) return false;
    return !op_rule(maker->name).with_input || made_again(maker->in.front());
  }

  // Made again rather than deferred from B to W.
  bool cheap(const Operation& maker) const {
    if (is_exchange(maker)) return options_.sharing.regather && maker.attributes.flag("again");
    return op_rule(maker.name).cheap || maker.attributes.flag("again");
  }

  // The first operation of the maker's backward hands the value over, too.
  bool made_by_backward(int value) const {
    const Operation* maker = of(value);
    return maker != nullptr && !is_exchange(*maker) && op_rule(maker->name).back_makes_output &&
           maker->out.front() == value;
  }

 private:
  // Differentiating makes operations of its own.
  static bool decides(const Operation& maker) { return !is_exchange(maker) && op_rule(maker.name).decides; }
  // By the options, or where it was recorded.
  bool is_named(const Operation& maker) const {
    if (maker.attributes.flag("remade")) return true;
    const auto& names = options_.remake.operations;
    if (std::ranges::find(names, maker.name) != names.end()) return true;
    return maker.name == "activation" && std::ranges::find(names, maker.attributes.text("kind")) != names.end();
  }

  const PlacedBody& body_;
  const ProgramOptions& options_;
  std::map<int, int> maker_;
};

// One list of a backward, in the making.
class ListMaker {
 public:
  // `given`: what there is already, but for kept values, which `kept` collects.
  ListMaker(const Makers& makers, std::set<int> given, std::set<int>& kept)
      : makers_(makers), available_(std::move(given)), kept_(kept) {}

  void add(const std::vector<BackwardOperation>& operations) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      // What is gathered again for a weight travels while the product before it runs.
      if (operations[i].part == Part::inputs) {
        for (std::size_t k = i + 1; k < operations.size() && operations[k].origin == operations[i].origin; ++k) {
          for (const int value : operations[k].operation.in) {
            const Operation* maker = value < 0 ? nullptr : makers_.of(value);
            if (maker == nullptr || !is_exchange(*maker)) continue;
            if (makers_.cheap(*maker)) available_.erase(value);
            ensure(value);
          }
        }
      }
      for (const int value : operations[i].operation.in) ensure(value);
      append(operations[i].operation);
    }
  }

  // W reads no parameter, whose value may be gone by then: what it needs of values that are made again is made here,
  // but for what is cheap.
  void make_for_weights(const std::vector<BackwardOperation>& weights) {
    for (const auto& weight : weights) {
      for (const int value : weight.operation.in) make_costly(value);
    }
  }

  std::vector<Operation> take() { return std::move(list_); }
  const std::set<int>& made() const { return made_; }

 private:
  void append(const Operation& operation) {
    for (const int value : operation.out) {
      if (value < 0) continue;
      available_.insert(value);
      made_.insert(value);
    }
    list_.push_back(operation);
  }

  void make_costly(int value) {
    if (value < 0 || available_.contains(value) || !makers_.made_again(value)) return;
    const Operation& maker = *makers_.of(value);
    if (!makers_.cheap(maker)) return ensure(value);
    for (const int input : maker.in) make_costly(input);
  }

  void ensure(int value) {
    if (value < 0 || available_.contains(value)) return;
    available_.insert(value);
    const Operation* maker = makers_.made_again(value) ? makers_.of(value) : nullptr;
    if (maker == nullptr) {
      kept_.insert(value);
      return;
    }
    for (const int input : maker->in) ensure(input);
    append(*maker);
  }

  const Makers& makers_;
  std::set<int> available_;
  std::set<int>& kept_;
  std::set<int> made_;
  std::vector<Operation> list_;
};

// The operations of one list. A weight's gradient waits for the operation that hands over what it reads.
std::vector<BackwardOperation> select(const std::vector<BackwardOperation>& all, ListKind kind, const Makers& makers) {
  std::vector<BackwardOperation> chosen;
  for (const auto& candidate : all) {
    if (kind == ListKind::inputs && candidate.part == Part::weights) continue;
    if (kind == ListKind::weights && candidate.part == Part::inputs) continue;
    chosen.push_back(candidate);
    auto& operation = chosen.back().operation;
    if (candidate.part != Part::both || kind == ListKind::both) continue;
    if (kind == ListKind::inputs) {
      operation.attributes.set("weights", 0);
    } else {
      operation.out.assign(operation.out.size(), -1);
      if (operation.name.ends_with("_norm_back")) operation.in.resize(3);
    }
  }
  if (kind != ListKind::both) return chosen;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i].part != Part::weights) continue;
    for (const int value : chosen[i].operation.in) {
      if (value < 0 || !makers.made_by_backward(value)) continue;
      const int origin = makers.index(value);
      const auto back = std::find_if(chosen.begin() + static_cast<std::ptrdiff_t>(i), chosen.end(),
                                     [&](const auto& other) { return other.origin == origin; });
      if (back == chosen.end()) continue;
      back->operation.out.push_back(value);
      std::rotate(chosen.begin() + static_cast<std::ptrdiff_t>(i), chosen.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                  back + 1);
      --i;
      break;
    }
  }
  return chosen;
}

// Exchanges as a start, right behind what makes their input, and a wait in front of the first reader.
std::vector<Operation> started_early(const std::vector<Operation>& list) {
  std::vector<Operation> out;
  for (const auto& operation : list) {
    if (!is_exchange(operation)) {
      out.push_back(operation);
      continue;
    }
    Operation start = operation;
    start.name = "start";
    const auto maker = std::find_if(out.rbegin(), out.rend(), [&](const Operation& other) {
      return other.name != "start" && std::ranges::find_first_of(other.out, start.in) != other.out.end();
    });
    // What is gathered again stays where it was put. Past other exchanges that wait there already, so that all start in
    // the order of their operations.
    auto place = maker == out.rend() || start.attributes.flag("again") ? out.end() : maker.base();
    while (place != out.end() && place->name == "start") ++place;
    out.insert(place, std::move(start));
  }
  std::vector<Operation> waited;
  std::map<int, Operation> pending;  // by what comes
  const auto wait_for = [&](int value) {
    const auto found = pending.find(value);
    if (found == pending.end()) return;
    waited.push_back({.name = "wait", .in = {found->second.in.front(), value}, .exchange = found->second.exchange});
    pending.erase(found);
  };
  for (auto& operation : out) {
    for (const int value : operation.in) wait_for(value);
    if (operation.name == "start") pending.emplace(operation.out.front(), operation);
    waited.push_back(std::move(operation));
  }
  while (!pending.empty()) wait_for(pending.begin()->first);
  return waited;
}

bool is_in(const std::vector<int>& values, int value) {
  return std::ranges::find(values, value) != values.end();
}

void free_after_last_use(std::vector<Operation>& list, const std::set<int>& live_out, const std::set<int>& live_in) {
  std::set<int> seen = live_out;
  for (auto operation = list.rbegin(); operation != list.rend(); ++operation) {
    operation->frees.clear();
    for (const int value : operation->out) {
      if (value < 0) continue;
      if (!seen.contains(value)) operation->frees.push_back(value);
      seen.erase(value);  // made anew here: what it was before ends with its own last reader
    }
    for (const int value : operation->in) {
      if (value >= 0 && seen.insert(value).second && !is_in(operation->out, value)) operation->frees.push_back(value);
    }
  }
  // What was there and is not read at all.
  if (list.empty()) return;
  for (const int value : live_in) {
    if (!seen.contains(value)) list.front().frees.push_back(value);
  }
}

std::set<int> values_of(const std::vector<int>& list) {
  std::set<int> found;
  for (const int value : list) {
    if (value >= 0) found.insert(value);
  }
  return found;
}

}  // namespace

void make_lists(Program& program, const PlacedBody& body, const Differentiated& backward,
                const ProgramOptions& options) {
  program.forward = body.operations;
  std::set<int> kept;
  std::set<int> in_forward;
  for (const auto& operation : program.forward) {
    if (operation.name == "head_loss_gradients" && operation.out.back() >= 0) in_forward.insert(operation.out.back());
  }
  for (const auto& operation : backward.in_forward) {
    program.forward.push_back(operation);
    in_forward.erase(operation.in.front());
    in_forward.insert(operation.out.front());
  }
  const Makers makers(body, options);
  std::set<int> given = values_of(program.seeds);
  // Gradients that forward has made are kept.
  const auto list_of = [&](ListKind kind, std::set<int> there) {
    ListMaker maker(makers, std::move(there), kept);
    maker.add(select(backward.operations, kind, makers));
    if (kind == ListKind::inputs) maker.make_for_weights(select(backward.operations, ListKind::weights, makers));
    return std::pair(maker.take(), maker.made());
  };
  program.both = list_of(ListKind::both, given).first;
  auto [inputs, made] = list_of(ListKind::inputs, given);
  std::set<int> left = given;
  for (const int value : made) {
    const Operation* maker = makers.of(value);
    if (maker == nullptr || !makers.cheap(*maker)) left.insert(value);
  }
  program.input_part = std::move(inputs);
  program.weight_part = list_of(ListKind::weights, left).first;
  for (auto* list : {&program.forward, &program.both, &program.input_part, &program.weight_part}) {
    *list = started_early(*list);
  }
  for (const int gradient : backward.gradients) {
    if (in_forward.contains(gradient)) {
      kept.insert(gradient);
      program.gradients_made.push_back(gradient);
    }
  }
  program.kept.assign(kept.begin(), kept.end());
}

LiveValues live_values(const Program& program) {
  LiveValues live;
  live.after_forward = values_of(program.kept);
  for (const int value : program.outputs) live.after_forward.insert(value);
  std::set<int> made_there;
  for (const auto& operation : program.weight_part) {
    for (const int value : operation.in) {
      if (value >= 0 && !made_there.contains(value)) live.deferred.insert(value);
    }
    for (const int value : operation.out) made_there.insert(value);
  }
  live.gradients = values_of(program.gradients);
  live.after_inputs = live.gradients;
  live.after_inputs.insert(live.deferred.begin(), live.deferred.end());
  return live;
}

void add_frees(Program& program) {
  const LiveValues live = live_values(program);
  program.deferred.assign(live.deferred.begin(), live.deferred.end());
  free_after_last_use(program.forward, live.after_forward, values_of(program.inputs));
  std::set<int> given = values_of(program.kept);
  for (const int value : values_of(program.seeds)) given.insert(value);
  free_after_last_use(program.both, live.gradients, given);
  free_after_last_use(program.input_part, live.after_inputs, given);
  free_after_last_use(program.weight_part, {}, live.deferred);
}

}  // namespace orthant
