// The forward pass of a stored model, without gradients, optimizer or loss: parameters in one dtype, units, and a call
// per batch of rows. The command `forward` is this; a program may use it alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "orthant/data/batch.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/executor.h"
#include "orthant/runtime/tables.h"
#include "orthant/specs/model_config.h"
#include "orthant/train/stored_model.h"

namespace orthant {

// What can be computed in.
inline constexpr std::array<DType, 3> kComputeDTypes = {DType::float32, DType::float64, DType::bfloat16};

struct InferenceOptions {
  DType dtype = DType::float32;  // of parameters, arithmetic and results
  at::Device device = at::kCPU;
  bool attention_mask = true;  // false: a decoder whose rows are never padded, which is faster
};

class Inference {
 public:
  // Reads the weights. DataError when the folder lacks any that the pass needs; ConfigError for a model without a
  // forward pass of its own (trimodal). The pooler of a bert may be missing: then there is no pooler_output.
  explicit Inference(StoredModel model, const InferenceOptions& options = {});
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  // "input_ids" int64 or int32 [rows, sequence]; optional "attention_mask" and "token_type_ids" of the same shape.
  // Gives "logits", or "last_hidden_state" and "pooler_output". DataError for shapes, fields and ids that do not fit.
  Fields forward(const Fields& inputs);

  // What forward() refuses.
  void check(const Fields& inputs) const;

  std::vector<std::string> outputs() const;  // their names, in this order
  Shape output_shape(const std::string& output, std::int64_t rows, std::int64_t sequence) const;
  const ModelConfig& config() const { return model_.config; }
  const GraphSpec& graph() const { return graph_; }
  ParameterStore& parameters() { return *store_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void load();

  StoredModel model_;
  InferenceOptions options_;
  GraphSpec graph_;
  Tables tables_;
  std::unique_ptr<ParameterStore> store_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::string> notes_;
};

}  // namespace orthant
