// The forward pass of a stored model, without gradients, optimizer or loss: parameters in one dtype, units, and a call
// per batch of rows. The command `forward` is this; a program may use it alike. On a mesh of tp ranks each of them
// holds, reads and computes its part, and all have the results.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "orthant/checkpoint/stored_model.h"
#include "orthant/comm/communicator.h"
#include "orthant/comm/control_group.h"
#include "orthant/data/batch.h"
#include "orthant/mesh/mesh.h"
#include "orthant/models/model_config.h"
#include "orthant/train/loaded_model.h"

namespace orthant {

// What can be computed in.
inline constexpr std::array<DType, 3> kComputeDTypes = {DType::float32, DType::float64, DType::bfloat16};

struct InferenceOptions {
  DType dtype = DType::float32;  // of parameters, arithmetic and results
  at::Device device = at::kCPU;
  bool attention_mask = true;  // false: a decoder whose rows are never padded, which is faster
  Mesh mesh = {};              // see check_inference_mesh()
  // Of the mesh, with inference_groups(); null on one rank.
  std::shared_ptr<const comm::Communicator> communicator = nullptr;
};

// ConfigError for other axes than tp: the rows are computed once, by one stage.
void check_inference_mesh(const Mesh& mesh);
std::vector<comm::GroupRequest> inference_groups(const Mesh& mesh);
// The ranks of the mesh, to agree by.
ControlGroup inference_ranks(const InferenceOptions& options);

// The forward pass as it lies over the mesh. ConfigError for a degree that the model does not allow, which names
// others, and for a model without a forward pass of its own (trimodal).
GraphSpec inference_graph(const ModelConfig& config, const InferenceOptions& options, bool pooler = true);

// What a rank of the mesh holds and reads.
struct InferenceShare {
  std::int64_t parameters = 0;
  std::int64_t held_bytes = 0;  // of its buffers
  std::int64_t read_bytes = 0;  // of the folder's tensors
};
// Of every rank. Reads no tensor; DataError as by Inference. Local.
std::vector<InferenceShare> inference_shares(const StoredModel& model, const InferenceOptions& options);

class Inference {
 public:
  // Reads the weights. DataError when the folder lacks any that the pass needs; ConfigError as by inference_graph().
  // The pooler of a bert may be missing: then there is no pooler_output. Collective over the mesh.
  explicit Inference(StoredModel model, const InferenceOptions& options = {});
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  // "input_ids" int64 or int32 [rows, sequence]; optional "attention_mask" and "token_type_ids" of the same shape.
  // Gives "logits", or "last_hidden_state" and "pooler_output", on every rank. DataError for shapes, fields and ids
  // that do not fit. Collective over the mesh: every rank gives the same inputs.
  Fields forward(const Fields& inputs);

  // What forward() refuses.
  void check(const Fields& inputs) const;

  std::vector<std::string> outputs() const;  // their names, in this order
  Shape output_shape(const std::string& output, std::int64_t rows, std::int64_t sequence) const;
  const ModelConfig& config() const { return model_.config; }
  const GraphSpec& graph() const { return loaded_->graph(); }
  ParameterStore& parameters() { return loaded_->parameters(); }
  const std::vector<std::string>& notes() const { return notes_; }
  std::int64_t bytes_read() const { return loaded_->bytes_read(); }  // of weights, by this rank

 private:
  void load();

  StoredModel model_;
  InferenceOptions options_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::string> notes_;
};

}  // namespace orthant
