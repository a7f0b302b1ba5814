// Three stages that exchange one value of every kind, each on a pp coordinate of its own: what a test of their links
// sends.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "comm/ranks.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/parallel/pipeline/stage_links.h"

namespace orthant::test {

enum Value { kWide, kIds, kMask, kLow, kOpen, kBack, kLoss };

// u0 writes all but the last two values; u1 and u2 read them.
inline GraphSpec linked_graph() {
  GraphSpec graph;
  graph.name = "linked";
  graph.batch_fields = {{.name = "x", .shape = {4}, .differentiable = false}};
  graph.values = {{.name = "wide", .shape = {4, 3}, .dtype = DType::float64},
                  {.name = "ids", .shape = {4, 2}, .dtype = DType::int64, .differentiable = false},
                  {.name = "mask", .shape = {5}, .dtype = DType::boolean, .differentiable = false},
                  {.name = "low", .shape = {2, 5}, .dtype = DType::bfloat16},
                  {.name = "open", .opaque = true},
                  {.name = "back", .shape = {1}},
                  {.name = "loss"}};
  const std::vector<std::string> all = {"wide", "ids", "mask", "low", "open"};
  graph.units = {{.name = "u0", .kind = "test", .inputs = {"x"}, .outputs = all},
                 {.name = "u1", .kind = "test", .inputs = all, .outputs = {"back"}},
                 {.name = "u2", .kind = "test", .inputs = all, .outputs = {"loss"}, .is_loss = true}};
  graph.units[2].inputs.push_back("back");
  graph.check();
  return graph;
}

inline Action message(ActionKind kind, int value, int microbatch, int peer, int consumer = -1) {
  return {.kind = kind, .value = value, .consumer = consumer, .peer = peer, .microbatch = microbatch};
}

inline Action sent(int value, int microbatch, int peer) {
  return message(ActionKind::send, value, microbatch, peer);
}

inline Action received(int value, int microbatch, int peer) {
  return message(ActionKind::receive, value, microbatch, peer);
}

inline StageLinks::Form declared(const GraphSpec& graph, const Action& action) {
  const auto& value = graph.values[static_cast<std::size_t>(action.value)];
  return {value.shape, scalar_type(value.dtype)};
}

// One rank's end of everything.
struct LinkedRank {
  const GraphSpec& graph;
  comm::Communicator& communicator;
  StageLinks& links;
  int index;  // pp coordinate

  void begin(const std::vector<Action>& actions) const {
    links.begin(actions, [this](const Action& action) { return declared(graph, action); });
  }
  comm::Group activations() const { return communicator.group(Axis::pp, comm::Purpose::activations); }
};

inline std::vector<comm::GroupRequest> link_groups() {
  return {{Axis::pp, comm::Purpose::activations}, {Axis::pp, comm::Purpose::gradients}};
}

// `placement` is the pp coordinate of each unit's stage.
inline comm::test::Body linked_body(std::vector<int> placement, std::function<void(LinkedRank&)> body) {
  return [placement = std::move(placement), body = std::move(body)](comm::Communicator& communicator) {
    const auto graph = linked_graph();
    const StageMap map{.units = {{0}, {1}, {2}}, .pp_coordinates = placement};
    const LinkGroups groups{communicator.group(Axis::pp, comm::Purpose::activations),
                            communicator.group(Axis::pp, comm::Purpose::gradients)};
    StageLinks links(graph, groups, map, /*channels=*/{}, comm::test::kDevice);
    LinkedRank rank{graph, communicator, links, communicator.rank()};
    body(rank);
    links.end();
    links.finish();
  };
}

inline void on_linked_ranks(const std::vector<int>& placement, comm::BackendKind backend,
                            const std::function<void(LinkedRank&)>& body) {
  const int pp = 1 + *std::max_element(placement.begin(), placement.end());
  comm::test::on_ranks(Mesh(Degrees{{Axis::pp, pp}}), comm::test::quick(false, backend), link_groups(),
                       linked_body(placement, body));
}

// Two ranks, or three; the first writes.
inline void on_linked_ranks(int pp, comm::BackendKind backend, const std::function<void(LinkedRank&)>& body) {
  on_linked_ranks(pp == 3 ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1, 1}, backend, body);
}

}  // namespace orthant::test
