#include "orthant/models/generation_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/models/family.h"
#include "orthant/models/graph_parts.h"
#include "orthant/models/work_size.h"

namespace orthant {
namespace {

constexpr const char* kLogitsValue = "logits";

// Values per token become values per picked token, and `first_token` stands before all operations.
Body picking(Body body) {
  const int hidden = body.inputs.front();
  const int picked = static_cast<int>(body.values.size());
  for (auto& operation : body.operations) {
    std::ranges::replace(operation.in, hidden, picked);
    for (const int value : operation.out) {
      if (value >= 0) body.values[to_index(value)].dims[0].sym = Sym::rows;
    }
  }
  body.values.push_back({"picked", {{Sym::rows}, body.values[to_index(hidden)].dims[1]}});
  body.operations.insert(body.operations.begin(), {.name = "first_token", .in = {hidden}, .out = {picked}});
  return body;
}

}  // namespace

GraphSpec generation_graph(const ModelConfig& config, const WorkSize& work) {
  if (config.family().task != Task::next_token) {
    throw ConfigError(
        fmt::format("a model of kind {} does not generate text: it learns no next token", model_kind(config)),
        {.remedy = "use a decoder, e.g. llama or gpt2"});
  }
  GraphSpec graph = forward_spec(config, work);
  UnitSpec& head = graph.units.back();
  head.body = picking(*head.body);
  for (auto& value : graph.values) {
    if (value.name != kLogitsValue) continue;
    value.shape = {work.rows, value.shape.back()};
    value.tokens_of.clear();
    if (value.tp) value.tp->dim = 1;
  }
  graph.cached = true;
  graph.check();
  return graph;
}

std::vector<CachedHeads> cached_heads(const GraphSpec& graph) {
  const int tp = graph.tensor ? graph.tensor->degree : 1;
  std::vector<CachedHeads> found(graph.units.size());
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    for (const auto& operation : graph.units[u].body->operations) {
      if (operation.name != "attention") continue;
      const Attributes& attributes = operation.attributes;
      found[u] = {.kv_heads = std::max<std::int64_t>(attributes.integer("kv_heads") / tp, 1),
                  .head_size = attributes.integer("head_size"),
                  .window = attributes.integer("window"),
                  .heads = attributes.integer("heads") / tp};
    }
  }
  return found;
}

std::int64_t common_window(const std::vector<CachedHeads>& heads) {
  std::int64_t widest = 0;
  for (const auto& unit : heads) {
    if (unit.kv_heads == 0) continue;
    if (unit.window == 0) return 0;
    widest = std::max(widest, unit.window);
  }
  return widest;
}

std::int64_t most_positions(const ModelConfig& config) {
  const ModelFacts facts = facts_of(config);
  if (facts.dynamic_positions) return *facts.dynamic_positions;
  return facts.positions_end ? facts.max_sequence : 0;
}

}  // namespace orthant
