#include "orthant/schedule/trained_graph.h"

#include <algorithm>
#include <utility>

#include "orthant/base/index.h"
#include "orthant/layout/expert_view.h"

namespace orthant {
namespace {

// Whether a user's stages have the loss of a head somewhere else.
bool cuts_loss_off(const std::vector<std::vector<std::string>>& split, const GraphSpec& graph) {
  const auto has = [](const std::vector<std::string>& stage, const std::string& unit) {
    return std::ranges::find(stage, unit) != stage.end();
  };
  for (const UnitSpec& loss : graph.units) {
    if (!loss.is_loss) continue;
    for (const auto& input : loss.inputs) {
      const int writer = graph.producer(input);
      if (writer < 0) continue;
      const auto& head = graph.units[to_index(writer)].name;
      if (std::ranges::any_of(split, [&](const auto& stage) { return has(stage, loss.name) != has(stage, head); })) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

GraphSpec trained_graph(GraphSpec graph, const TensorPolicy& tensor, const Mesh& mesh, const HeadLossOptions& head_loss,
                        const std::vector<std::vector<std::string>>& split) {
  graph = resolved_graph(with_experts(std::move(graph), mesh, tensor), tensor, mesh.degree(Axis::tp));
  if (head_loss.join == JoinHeadAndLoss::automatic && cuts_loss_off(split, graph)) return graph;
  return join_head_and_loss(std::move(graph), head_loss);
}

}  // namespace orthant
