#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/program/float8.h"
#include "orthant/program/fuse.h"
#include "orthant/program/lists.h"

namespace orthant {
namespace {

// The body as an evaluation runs it: nothing is dropped.
Body without_dropout(Body body) {
  std::map<int, int> stands_for;
  const auto current = [&](int value) {
    const auto found = stands_for.find(value);
    return found == stands_for.end() ? value : found->second;
  };
  std::vector<Operation> left;
  for (auto& operation : body.operations) {
    for (int& value : operation.in) value = current(value);
    if (operation.name == "dropout") {
      stands_for[operation.out[0]] = operation.in[0];
      continue;
    }
    if (operation.attributes.find("p") != nullptr) operation.attributes.set("p", 0.0);
    left.push_back(std::move(operation));
  }
  for (int& value : body.outputs) value = current(value);
  body.operations = std::move(left);
  return body;
}

// Attention of rows that are cut over cp; of all_to_all what has arrived is kept in place of what was sent.
void share_rows(Body& body, const ContextSharing& context) {
  if (context.degree == 1) return;
  for (auto& operation : body.operations) {
    if (operation.name != "attention") continue;
    operation.attributes.set("context", std::string(context_way_name(context.way)));
    if (context.way != ContextWay::all_to_all) continue;
    const BodyValue& qkv = body.values[to_index(operation.in.front())];
    operation.out.push_back(static_cast<int>(body.values.size()));
    body.values.push_back({"met", qkv.dims, qkv.number});
  }
}

// Attention of a generation.
void cache_keys(Body& body, bool cached) {
  if (!cached) return;
  for (auto& operation : body.operations) {
    if (operation.name == "attention") operation.attributes.set("cached", 1);
  }
}

// Recorded values of a name are told apart by numbers: normed, normed2.
void number_names(std::vector<BodyValue>& values) {
  std::map<std::string, int> seen;
  for (auto& value : values) {
    const int number = ++seen[value.name];
    if (number > 1) value.name += std::to_string(number);
  }
}

// Further gradients of a value by strokes: d.normed, d.normed'.
void mark_names(std::vector<ProgramValue>& values) {
  std::set<std::string> used;
  for (auto& value : values) {
    while (!used.insert(value.name).second) value.name += "'";
  }
}

}  // namespace

Remake remake_of(Recompute mode) {
  switch (mode) {
    case Recompute::none:
      return {};
    case Recompute::selective:
      return {.operations = {"attention"}};
    case Recompute::full:
      return {.all = true};
  }
  return {};
}

Remake remake_of(Recompute mode, const std::vector<std::string>& operations) {
  Remake remake = remake_of(mode);
  remake.operations.insert(remake.operations.end(), operations.begin(), operations.end());
  return remake;
}

Program compile_unit(const GraphSpec& graph, const UnitSpec& unit, const ProgramOptions& options) {
  if (!unit.body) throw InternalError(fmt::format("unit {} has no recorded operations", unit.name));
  Body recorded = options.training ? *unit.body : without_dropout(*unit.body);
  share_rows(recorded, graph.context);
  cache_keys(recorded, graph.cached);
  mark_sums_of_norms(recorded);
  number_names(recorded.values);
  ProgramOptions all = options;
  all.sharing = graph.tensor.value_or(options.sharing);
  PlacedBody body = place_body(graph, unit, recorded, all.sharing);
  all.needs.resize(unit.inputs.size());
  Differentiated backward;
  if (options.training) backward = differentiate(body, all);
  Program program;
  program.inputs = body.inputs;
  program.outputs = body.outputs;
  program.seeds = backward.seeds;
  program.gradients = backward.gradients;
  make_lists(program, body, backward, all);
  program.values = std::move(body.values);
  program.parameters = std::move(body.parameters);
  const LiveValues live = live_values(program);
  const auto fuse_forward = graph.cached ? fused_of_generation : fused;
  program.forward = fuse_forward(std::move(program.forward), live.after_forward);
  program.both = fused(std::move(program.both), live.gradients);
  program.input_part = fused(std::move(program.input_part), live.after_inputs);
  program.weight_part = fused(std::move(program.weight_part), {});
  round_operands(program);
  add_frees(program);
  mark_names(program.values);
  return program;
}

}  // namespace orthant
