// One rank's part of a model that generates: its weights, its part of the cache, and the steps that it is ordered to
// compute. The executor and the programs are those of training; see Note [Steps of a generation] in nn/token_rows.h.
//
// Note [Recorded steps of a generation]: on a card a step of next tokens is recorded and played back as a step of
// training is (train/recorded_steps.h), one recording for each bucket of sequences and of the longest past. Places of a
// bucket that nobody has are computed and nobody reads them; they write nothing into the cache. All that a step is told
// comes in one copy, and the tokens that were chosen go back in one, for which alone the host waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "orthant/generate/generation_options.h"
#include "orthant/generate/generation_stages.h"
#include "orthant/generate/step_tensors.h"
#include "orthant/generate/token_choice.h"
#include "orthant/models/generation_graph.h"
#include "orthant/nn/device_variants.h"
#include "orthant/nn/key_cache.h"
#include "orthant/parallel/pipeline/stage_links.h"
#include "orthant/serve/step_order.h"
#include "orthant/train/loaded_model.h"
#include "orthant/train/recorded_steps.h"

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
  // others nothing. Collective over the replica's tp and, by messages, pp: its ranks compute the same orders in turn;
  // over all replicas where they hold experts for one another.
  std::vector<GeneratedToken> run(const StepOrder& order);
  bool chooses() const { return chooses_; }

  const GraphSpec& graph() const { return loaded_->graph(); }
  const std::vector<std::string>& notes() const { return notes_; }
  std::int64_t bytes_read() const { return loaded_->bytes_read(); }
  const RecordedSteps& recorded_steps() const { return *steps_; }

 private:
  void find_kernels();
  nn::device::Variants variants() const;
  std::unique_ptr<DeviceRecorder> recorder() const;
  at::Tensor logits_of(StepTensors tensors);

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
  StepForm form_;
  std::unique_ptr<RecordedSteps> steps_;
  std::int32_t nobodys_block_ = 0;  // of the cache: where a step that only joins others has its token
  std::int64_t step_ = 0;
  bool chooses_ = false;
  TokenChoice choice_;  // on the choosing rank
};

}  // namespace orthant
