#include "program/list_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/index.h"

namespace orthant::test {
namespace {

using Values = std::set<int>;

Values defined(const std::vector<int>& values) {
  Values found(values.begin(), values.end());
  found.erase(-1);
  return found;
}

Values both(Values a, const Values& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// Operations whose first output lies in the memory of their first input.
bool overwrites(const Operation& operation) {
  return operation.name == "rotary" || operation.name == "rotary_back" || operation.name == "rotary_attention" ||
         (operation.name == "start" && operation.exchange->kind == ExchangeSpec::Kind::sum);
}

bool adds_gradients(const Operation& operation) {
  if (operation.name == "head_loss_gradients" || operation.name.ends_with("_weight")) return true;
  const bool makes = operation.name.ends_with("_norm_back") || operation.name == "head_loss_back";
  return makes && operation.attributes.flag("weights");
}

bool reads_parameters(const Operation& operation) {
  if (operation.parameters.empty() || operation.name == "start" || operation.name.ends_with("_weight")) return false;
  const bool weights_alone = std::ranges::all_of(operation.out, [](int value) { return value < 0; });
  return !(operation.name.ends_with("_norm_back") && weights_alone);
}

class Walk {
 public:
  Walk(const Program& program, std::string title, Values there, std::vector<std::string>& problems)
      : program_(program), title_(std::move(title)), there_(std::move(there)), problems_(problems) {}

  void run(const std::vector<Operation>& list, const Values& at_end) {
    for (const auto& operation : list) step(operation);
    for (const int value : travelling_) say("nobody waits for", value);
    for (const int value : there_) {
      if (!at_end.contains(value)) say("is left behind:", value);
    }
    for (const int value : at_end) {
      if (!there_.contains(value)) say("is missing at the end:", value);
      if (overwritten_.contains(value)) say("is overwritten at the end:", value);
    }
  }

 private:
  void step(const Operation& operation) {
    const bool waits = operation.name == "wait";
    for (std::size_t i = 0; i < operation.in.size(); ++i) {
      const int value = operation.in[i];
      if (value < 0) continue;
      if (waits && i == 1) {
        if (travelling_.erase(value) == 0) say("waits for what was not sent:", value);
        continue;
      }
      if (!there_.contains(value)) say("reads what is not there:", value);
      if (travelling_.contains(value)) say("reads what is on its way:", value);
      if (overwritten_.contains(value) && !waits) say("reads what was overwritten:", value);
    }
    if (overwrites(operation)) overwritten_.insert(operation.in.front());
    for (const int value : operation.out) {
      if (value < 0) continue;
      if (!there_.insert(value).second) say("makes what is there:", value);
      overwritten_.erase(value);
      if (operation.name == "start") travelling_.insert(value);
    }
    for (const int value : operation.frees) {
      if (travelling_.contains(value)) say("frees what is on its way:", value);
      if (there_.erase(value) == 0) say("frees what is not there:", value);
    }
  }

  void say(const char* what, int value) {
    problems_.push_back(fmt::format("{} {} {}", title_, what, program_.values[to_index(value)].name));
  }

  const Program& program_;
  std::string title_;
  Values there_;
  Values travelling_;
  Values overwritten_;
  std::vector<std::string>& problems_;
};

std::map<int, int> gradients_of(const Program& program, const std::vector<Operation>& list) {
  std::map<int, int> found;
  for (const auto& operation : list) {
    if (!adds_gradients(operation)) continue;
    for (const int parameter : operation.parameters) {
      if (parameter >= 0 && program.parameters[to_index(parameter)].at.trainable) ++found[parameter];
    }
  }
  return found;
}

void check_gradients(const Program& program, std::vector<std::string>& problems) {
  auto forward = gradients_of(program, program.forward);
  auto at_once = gradients_of(program, program.both);
  auto inputs = gradients_of(program, program.input_part);
  auto weights = gradients_of(program, program.weight_part);
  for (int p = 0; p < static_cast<int>(program.parameters.size()); ++p) {
    const auto& parameter = program.parameters[to_index(p)];
    const int wanted = parameter.at.trainable ? 1 : 0;
    const auto check = [&](const char* list, int found, int expected) {
      if (found == expected) return;
      problems.push_back(fmt::format("{} adds {} gradients of {}", list, found, parameter.use.name));
    };
    check("BW", forward[p] + at_once[p], wanted);
    check("W", forward[p] + weights[p], wanted);
    check("B", inputs[p], 0);
  }
}

}  // namespace

std::vector<std::string> problems(const Program& program) {
  std::vector<std::string> found;
  const Values kept = defined(program.kept);
  const Values seeds = defined(program.seeds);
  const Values gradients = defined(program.gradients);
  const Values deferred = defined(program.deferred);
  const bool seeded = !program.gradients_made.empty() || std::ranges::any_of(program.forward, [](const auto& op) {
    return op.name == "head_loss_gradients";
  });
  Values start = defined(program.inputs);
  if (seeded) start.insert(program.seeds.front());
  Walk(program, "F", start, found).run(program.forward, both(kept, defined(program.outputs)));
  if (!program.has_backward()) return found;
  // Where forward has made all gradients there is nothing that would take a seed.
  const Values given = seeded && program.both.empty() ? kept : both(kept, seeds);
  Walk(program, "BW", given, found).run(program.both, gradients);
  Walk(program, "B", given, found).run(program.input_part, both(gradients, deferred));
  Walk(program, "W", deferred, found).run(program.weight_part, {});
  for (const auto& operation : program.weight_part) {
    if (reads_parameters(operation) && operation.name != "head_loss_back") {
      found.push_back(fmt::format("W reads a parameter in {}", operation.name));
    }
  }
  check_gradients(program, found);
  return found;
}

}  // namespace orthant::test
