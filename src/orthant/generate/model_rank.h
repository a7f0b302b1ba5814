// One rank's part of a model that generates: its weights, its part of the cache, and the steps that it is ordered to
// compute. The executor and the programs are those of training; see Note [Steps of a generation] in nn/token_rows.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "orthant/generate/generation_options.h"
#include "orthant/generate/generation_stages.h"
#include "orthant/models/generation_graph.h"
#include "orthant/nn/key_cache.h"
#include "orthant/parallel/pipeline/stage_links.h"
#include "orthant/serve/step_order.h"
#include "orthant/serve/token_chooser.h"
#include "orthant/train/loaded_model.h"

namespace orthant {

class ModelRank {
 public:
  // Reads the weights; the cache comes with make_cache(). Collective over the mesh. DataError and ConfigError as by
  // Inference, and as by check_generation_mesh().
  ModelRank(const StoredModel& model, const GenerationOptions& options);
  ~ModelRank();
  ModelRank(const ModelRank&) = delete;
  ModelRank& operator=(const ModelRank&) = delete;

  // Of the cache, on this rank. Local.
  std::int64_t block_bytes() const;
  // `most_positions`: that a sequence may have. Local.
  void make_cache(std::int64_t blocks, std::int64_t most_positions);
  // The window that all attention of the model has, on all ranks alike; 0: none.
  std::int64_t window() const { return window_; }

  // Computes the step. The tokens of the parts with an answer, in their order, on the choosing rank of the replica; on
  // others nothing. Collective over the replica's tp and, by messages, pp: its ranks compute the same orders in turn.
  std::vector<GeneratedToken> run(const StepOrder& order);
  bool chooses() const { return chooses_; }

  const GraphSpec& graph() const { return loaded_->graph(); }
  const std::vector<std::string>& notes() const { return notes_; }
  std::int64_t bytes_read() const { return loaded_->bytes_read(); }

 private:
  struct StepInputs;
  StepInputs inputs_of(const StepOrder& order) const;
  std::vector<GeneratedToken> choose(const StepOrder& order, const at::Tensor& logits);

  GenerationOptions options_;
  std::vector<std::string> notes_;
  GenerationStages stages_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<StageLinks> links_;  // null on one stage
  std::unique_ptr<Executor> executor_;
  std::vector<CachedHeads> heads_;  // per unit
  std::int64_t window_ = 0;
  std::vector<Action> actions_;
  std::vector<Action> without_head_;  // of a step that wants no logits
  std::vector<nn::KeyCache> keys_;    // per unit
  std::int64_t most_positions_ = 0;
  std::int64_t step_ = 0;
  bool chooses_ = false;
  std::unordered_map<std::uint64_t, TokenChooser> choosers_;  // by sequence, on the choosing rank
};

}  // namespace orthant
