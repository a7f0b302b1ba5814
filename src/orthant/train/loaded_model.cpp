#include "orthant/train/loaded_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/checkpoint/large_buffer.h"
#include "orthant/models/model_facts.h"
#include "orthant/parallel/context/group_context.h"
#include "orthant/parallel/expert/group_experts.h"
#include "orthant/parallel/tensor/group_axis.h"
#include "orthant/runtime/unit.h"
#include "orthant/train/trainer_setup.h"

namespace orthant {

ForwardWeights open_forward(const StoredModel& model, const std::function<GraphSpec(bool pooler)>& graph_of,
                            const ControlGroup& ranks) {
  const auto* const names = model.checkpoint ? nullptr : &tensor_names(model.config);
  const std::vector<PretrainedSource> source = {{model.folder, names}};
  ForwardWeights found{graph_of(/*pooler=*/true), {}, {}};
  found.weights = PretrainedWeights(found.graph, source, ranks);
  const auto is_pooler = [](const std::string& name) { return name.starts_with("pooler."); };
  if (std::ranges::any_of(found.weights.absent(), is_pooler)) {
    found.graph = graph_of(/*pooler=*/false);
    found.weights = PretrainedWeights(found.graph, source, ranks);
    found.notes.push_back(fmt::format("{}: has no pooler, so there is no pooler_output", model.folder.string()));
  }
  if (!found.weights.absent().empty()) {
    throw DataError(
        fmt::format("{}: lacks {}, without which there are no logits", model.folder.string(),
                    fmt::join(found.weights.absent(), ", ")),
        {.remedy = "use a folder with a language-model head, or set tie_word_embeddings in its config.json"});
  }
  for (auto& note : found.weights.notes()) found.notes.push_back(std::move(note));
  return found;
}

LoadedModel::LoadedModel(ForwardWeights found, const LoadOptions& options) : graph_(std::move(found.graph)) {
  const ControlGroup ranks(options.communicator);
  const auto make = [&](std::int64_t elements, at::ScalarType type) {
    if (options.device.is_cpu()) return make_large_buffer(elements, type);
    return at::zeros({elements}, at::TensorOptions().dtype(type).device(options.device));
  };
  const Precision precision{options.dtype, options.dtype, options.dtype};
  StoreOptions store;
  store.communicator = options.communicator.get();
  store.unit_pp_coordinates = options.unit_pp_coordinates;
  store_ = std::make_unique<ParameterStore>(graph_, options.mesh, ranks.rank(), precision, make, std::move(store));
  if (options.mesh.degree(Axis::tp) > 1) {
    tensor_ =
        std::make_unique<GroupAxis>(options.communicator->group(Axis::tp, comm::Purpose::activations), *graph_.tensor);
  }
  if (options.mesh.degree(Axis::cp) > 1) {
    context_ = std::make_unique<GroupContext>(options.communicator->group(Axis::cp, comm::Purpose::activations),
                                              graph_.context);
  }
  if (options.mesh.degree(Axis::ep) > 1) {
    experts_ = std::make_unique<GroupExperts>(options.communicator->subgroup(kTokenGroup));
  }
  units_ = build_units(*store_, tables_);
  found.weights.load(*store_, ranks);
  bytes_read_ = found.weights.bytes_read();
}

}  // namespace orthant
