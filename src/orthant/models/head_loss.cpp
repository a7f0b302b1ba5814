#include "orthant/models/head_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/base/nearest.h"
#include "orthant/program/cost.h"

namespace orthant {
namespace {

constexpr std::string_view kLogits = "logits";
constexpr std::array<std::string_view, 3> kJoinNames = {"auto", "on", "off"};

// Elements of a chunk's logits, and the fewest tokens: fewer would make products slow.
constexpr std::int64_t kDeviceElements = std::int64_t{512} << 20;
constexpr std::int64_t kHostElements = std::int64_t{16} << 20;
constexpr std::int64_t kLeastRows = 256;

struct Pair {
  std::size_t head = 0;
  std::size_t loss = 0;
};

bool is_logits_of_tokens(const GraphSpec& graph) {
  const auto found = std::ranges::find(graph.values, kLogits, &ValueSpec::name);
  return found != graph.values.end() && !found->tokens_of.empty() && found->shape.size() == 3;
}

// The matrix that makes the logits: the unit's own or a borrowed one, with a row per class.
const ParameterSpec* weight_of(const GraphSpec& graph, const UnitSpec& head) {
  const std::int64_t classes = graph.value(kLogits).shape.back();
  const auto makes = [&](const ParameterSpec& parameter) {
    return parameter.shape.size() == 2 && parameter.shape.front() == classes;
  };
  for (const auto& name : head.borrowed) {
    if (makes(graph.parameter(name))) return &graph.parameter(name);
  }
  const auto found = std::ranges::find_if(head.parameters, makes);
  return found == head.parameters.end() ? nullptr : &*found;
}

int degree_of(const GraphSpec& graph) {
  return graph.tensor ? graph.tensor->degree : 1;
}

// Why a graph's head and loss stay apart; empty: they are `pair`.
std::string obstacle(const GraphSpec& graph, Pair& pair) {
  if (!is_logits_of_tokens(graph)) return "it has no value logits with a row for every token";
  const auto readers = graph.consumers(kLogits);
  if (readers.size() != 1) return fmt::format("{} units read its logits", readers.size());
  pair = {static_cast<std::size_t>(graph.producer(kLogits)), to_index(readers.front())};
  const UnitSpec& head = graph.units[pair.head];
  const UnitSpec& loss = graph.units[pair.loss];
  if (loss.kind != "cross_entropy" || !loss.is_loss || !loss.parameters.empty()) {
    return fmt::format("unit {}, which reads its logits, is no cross-entropy", loss.name);
  }
  if (!head.kind.ends_with(".head") || head.outputs.size() != 1) {
    return fmt::format("unit {} writes its logits and is no head of a language model", head.name);
  }
  if (!graph.consumers(loss.outputs.front()).empty()) return "its loss is read by another unit";
  const ParameterSpec* const weight = weight_of(graph, head);
  if (weight == nullptr) return fmt::format("unit {} has no matrix with a row per class", head.name);
  if (degree_of(graph) > 1 && !(weight->tp && weight->tp->dim == 0)) {
    return fmt::format("parameter {} is whole on every tp rank", weight->name);
  }
  return {};
}

std::int64_t part(std::int64_t size, int degree) {
  return (size + degree - 1) / degree;
}

// The head's last product, its bias and the loss as one operation: in x, labels; out loss, numbers per token.
Body joined_body(const Body& head, const Body& loss, const ChunkedLogits& logits) {
  Body body = head;
  Operation joined{.name = "head_loss"};
  if (body.operations.back().name == "bias") {
    joined.parameters = body.operations.back().parameters;
    body.operations.pop_back();
  }
  const Operation product = body.operations.back();
  body.operations.pop_back();
  joined.parameters.insert(joined.parameters.begin(), product.parameters.front());
  const int labels = static_cast<int>(body.values.size());
  for (const int value : {loss.inputs[1], loss.outputs[0], loss.operations.front().out[1]}) {
    body.values.push_back(loss.values[to_index(value)]);
  }
  body.inputs.push_back(labels);
  joined.in = {product.in.front(), labels};
  joined.out = {labels + 1, labels + 2};
  joined.attributes.set("classes", logits.classes);
  joined.attributes.set("chunk_rows", logits.rows);
  joined.attributes.set("loss", logits.loss);
  body.operations.push_back(std::move(joined));
  body.outputs = {labels + 1};
  return body;
}

}  // namespace

std::string_view join_name(JoinHeadAndLoss choice) {
  return kJoinNames.at(static_cast<std::size_t>(choice));
}

JoinHeadAndLoss parse_join(std::string_view text) {
  const auto found = std::ranges::find(kJoinNames, text);
  if (found != kJoinNames.end()) return static_cast<JoinHeadAndLoss>(found - kJoinNames.begin());
  throw ConfigError(fmt::format("unknown choice \"{}\"", text),
                    {.remedy = did_you_mean(text, std::vector<std::string>(kJoinNames.begin(), kJoinNames.end()))});
}

std::int64_t chunk_rows_of(std::int64_t classes, bool on_host) {
  return std::max((on_host ? kHostElements : kDeviceElements) / std::max<std::int64_t>(classes, 1), kLeastRows);
}

GraphSpec join_head_and_loss(GraphSpec graph, const HeadLossOptions& options) {
  const bool joins =
      options.join == JoinHeadAndLoss::on || (options.join == JoinHeadAndLoss::automatic && !options.on_host);
  const bool joined = std::ranges::any_of(graph.units, [](const UnitSpec& unit) { return unit.logits.has_value(); });
  if (!joins || joined) return graph;
  Pair pair;
  if (const std::string reason = obstacle(graph, pair); !reason.empty()) {
    if (options.join != JoinHeadAndLoss::on) return graph;
    throw ConfigError(fmt::format("train.join_head_and_loss=on: graph \"{}\": {}", graph.name, reason),
                      {.remedy = "set train.join_head_and_loss=auto or off"});
  }
  UnitSpec unit = graph.units[pair.head];
  const UnitSpec loss = graph.units[pair.loss];
  const std::int64_t classes = graph.value(kLogits).shape.back();
  const std::int64_t own = part(classes, degree_of(graph));
  unit.kind += "_loss";
  for (const auto& name : loss.inputs) {
    if (name != kLogits) unit.inputs.push_back(name);
  }
  unit.outputs = loss.outputs;
  unit.is_loss = true;
  unit.logits = {.classes = classes,
                 .rows = options.chunk_rows > 0 ? options.chunk_rows : chunk_rows_of(own, options.on_host),
                 .loss = loss.name};
  if (unit.body && loss.body) unit.body = joined_body(*unit.body, *loss.body, *unit.logits);
  graph.units[pair.head] = std::move(unit);
  graph.units.erase(graph.units.begin() + static_cast<std::ptrdiff_t>(pair.loss));
  std::erase_if(graph.values, [](const ValueSpec& value) { return value.name == kLogits; });
  graph.check();
  add_costs(graph, {}, graph.units[pair.head].name, options.programs);
  return graph;
}

}  // namespace orthant
