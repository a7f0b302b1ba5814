// A stored model's weights on this rank, for passes without gradients: opened, checked and read once, with the ranks it
// shares its layers with. Whoever runs such passes (Inference, a generation) makes its executor over it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orthant/checkpoint/pretrained.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/comm/communicator.h"
#include "orthant/comm/control_group.h"
#include "orthant/mesh/mesh.h"
#include "orthant/nn/context_axis.h"
#include "orthant/nn/expert_axis.h"
#include "orthant/nn/tables.h"
#include "orthant/nn/tensor_axis.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/executor.h"

namespace orthant {

struct LoadOptions {
  DType dtype = DType::float32;
  at::Device device = at::kCPU;
  Mesh mesh = {};
  std::shared_ptr<const comm::Communicator> communicator = nullptr;  // null on one rank
  std::vector<int> unit_pp_coordinates = {};                         // per unit; empty: one stage
};

// A folder's weights and the pass that they suffice for.
struct ForwardWeights {
  GraphSpec graph;
  PretrainedWeights weights;
  std::vector<std::string> notes;
};

// `graph_of` makes the graph of the pass, with or without an encoder's pooler, which a folder may lack. DataError where
// other weights are missing. Reads no tensor. Collective over `ranks`; Local for one rank.
ForwardWeights open_forward(const StoredModel& model, const std::function<GraphSpec(bool pooler)>& graph_of,
                            const ControlGroup& ranks = {});

class LoadedModel {
 public:
  // Reads the weights. Collective over the mesh.
  LoadedModel(ForwardWeights found, const LoadOptions& options);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const GraphSpec& graph() const { return graph_; }
  ParameterStore& parameters() { return *store_; }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Without links to other stages, which belong to whoever runs them.
  Peers peers() const { return {.tensor = tensor_.get(), .context = context_.get(), .experts = experts_.get()}; }
  std::int64_t bytes_read() const { return bytes_read_; }  // of weights, by this rank

 private:
  GraphSpec graph_;
  Tables tables_;
  std::unique_ptr<nn::TensorAxis> tensor_;    // null on one tp rank
  std::unique_ptr<nn::ContextAxis> context_;  // null on one cp rank
  std::unique_ptr<nn::ExpertAxis> experts_;   // null without ep
  std::unique_ptr<ParameterStore> store_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::int64_t bytes_read_ = 0;
};

}  // namespace orthant
