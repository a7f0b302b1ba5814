// What serving a model asks of a card: weights, the cache of keys and values, and the largest batch and context that
// fit. Closed forms over the model's shape; nothing is searched but sizes.
//
// Note [Inference memory]: each of p stages has L/p layers (stage_cut.h), the first also the embedding, the last the
// head. Per card of a stage
//   weights  parameters of its units that a tp rank holds x bytes of the weights' dtype
//   cache    2 x layers x key/value heads of a tp rank x head size x bytes x batch x context; a rank has kv_heads / tp
//            of them, or one when tp is larger: tp / kv_heads ranks then hold the same one
//   working  hidden states, projections and MLP channels of the tokens that pass at once, and on the last stage float32
//            logits of one token per sequence
//   reserve  of the card: runtime, communication library, fragmentation
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/graph/dtype.h"
#include "orthant/mesh/mesh.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/plan_model.h"

namespace orthant {

struct InferenceRequest {
  PlanModel model;
  Hardware hardware;
  std::optional<Mesh> mesh = {};  // tp and pp; each of dp copies serves a batch of its own; none: of fewest cards
  std::int64_t context = 0;  // tokens of a sequence, prompt and answer; 0: the model's longest, 4096 where it has none
  std::int64_t batch = 1;    // sequences at one time, of one copy
  std::int64_t prefill = 2048;  // tokens that pass at once at most
  DType weights = DType::bfloat16;
  DType cache = DType::bfloat16;
};

// Of one card of a pipeline stage.
struct InferenceStage {
  std::int64_t layers = 0;
  std::int64_t weights = 0;
  std::int64_t cache = 0;
  std::int64_t working = 0;
  std::int64_t reserve = 0;

  std::int64_t total() const { return weights + cache + working + reserve; }
};

// For one length of context: what a sequence's cache takes of the fullest stage's card, and how many sequences fit.
struct ContextRow {
  std::int64_t context = 0;
  std::int64_t sequence_bytes = 0;
  std::int64_t largest_batch = 0;  // 0: not even one
  friend bool operator==(const ContextRow&, const ContextRow&) = default;
};

struct InferenceSize {
  InferenceRequest request;  // with its context
  Mesh mesh = {};
  std::vector<InferenceStage> stages = {};
  bool fits = false;
  std::string why_not = {};                // where it does not fit
  int cache_copies = 1;                    // tp ranks that hold the same key/value head
  std::int64_t cache_bytes_per_token = 0;  // of the stage with most layers
  std::int64_t largest_batch = 0;          // at this context
  std::int64_t largest_context = 0;        // at this batch, the model's longest at most
  std::vector<ContextRow> contexts = {};   // ascending
  std::optional<Mesh> smallest_mesh = {};  // of fewest cards for this batch and context, tp within a node

  int worst_stage() const;
};

// ConfigError for a model that keeps no cache (an encoder, several towers), a mesh with fsdp, cp or ep, a tp that heads
// do not divide into, more stages than layers, sizes below 1, a context beyond the model's longest.
InferenceSize size_inference(const InferenceRequest& request);

std::string to_json(const InferenceSize& size, int indent = -1);
std::string inference_text(const InferenceSize& size);

}  // namespace orthant
