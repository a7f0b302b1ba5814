// The trainer: a graph of units, its parameters in flat buffers, a schedule, an optimizer; one call makes one step. The
// command line and a user's program use the same class.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "orthant/data/batch.h"
#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/executor.h"
#include "orthant/runtime/tables.h"
#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"
#include "orthant/train/lr_schedule.h"
#include "orthant/train/optimizer.h"

namespace orthant {

class Graph;

// Which stages exist and in which order they run. The default is one stage.
struct StagePlan {
  std::string schedule = "1f1b";                // gpipe, 1f1b
  int stages = 1;                               // when `split` is empty
  std::vector<std::vector<std::string>> split;  // unit names per stage
};

struct TrainerOptions {
  std::uint64_t seed = 0;
  Precision precision;
  OptimizerOptions optimizer;
  LrSchedule lr;
  Recompute recompute = Recompute::none;
  int microbatches = 1;
  StagePlan stages;
  at::Device device = at::kCPU;
  bool allow_unused_parameters = false;
  bool pad_to_longest = false;  // of each microbatch, see trim_padding.h; false: batches are taken as they are
  std::map<std::string, double> loss_coefficients;  // by loss value; 1 when absent
  DrawnParameters drawn;                            // the others are zero until the caller fills them
};

// ConfigError for a mesh of several ranks.
void check_mesh(const Mesh& mesh);

// What a step does, by the stages and schedule of the options: validated and lowered. Local; makes no parameters.
std::vector<Action> step_actions(const GraphSpec& graph, const TrainerOptions& options);

// Makes the units once the parameters exist.
using MakeUnits = std::function<std::vector<std::unique_ptr<Unit>>(ParameterStore&, Tables&)>;

// The numbers of a step while they are still on their way from the device. get() waits for them.
class PendingStep {
 public:
  PendingStep() = default;
  PendingStep(const at::Tensor& loss_and_norm);

  struct Numbers {
    double loss = 0;
    double grad_norm = 0;  // before clipping
  };
  Numbers get() const;

 private:
  at::Tensor on_host_;
  std::shared_ptr<void> arrived_;  // a CUDA event
};

class Trainer {
 public:
  // Draws the initial weights and validates the schedule. ConfigError for what cannot run: a mesh of several ranks,
  // fewer units than stages.
  Trainer(GraphSpec graph, const MakeUnits& make_units, const Mesh& mesh, TrainerOptions options);
  // A user's own modules.
  Trainer(const Graph& graph, const Mesh& mesh, TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Forward and backward of all microbatches, global norm, clip, update. The first step is step 1.
  PendingStep step(const Batch& batch);

  // Gradients alone: no update, and the step is not counted. They lie in parameters() until the next call.
  PendingStep gradients(const Batch& batch);

  // The named values of some rows, without gradients and dropout; with pad_to_longest they have that length.
  std::map<std::string, at::Tensor> evaluate(const Fields& fields, const std::vector<std::string>& wanted);

  std::int64_t steps_done() const { return steps_done_; }
  double lr() const { return options_.lr.at(steps_done_ + 1); }  // of the step about to be made
  std::uint64_t weights_hash() const;                            // see weights_hash.h

  // A checkpoint folder: parameters, optimizer state, step. Atomic. load() takes it back and refuses one of another
  // model.
  void save(const std::string& folder) const;
  void load(const std::string& folder);

  const GraphSpec& graph() const { return graph_; }
  ParameterStore& parameters() { return *store_; }
  const ParameterStore& parameters() const { return *store_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const TrainerOptions& options() const { return options_; }
  const std::vector<Action>& actions() const { return actions_; }
  const Mesh& mesh() const { return mesh_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }

 private:
  std::vector<Microbatch> microbatches(const Batch& batch) const;
  at::Tensor run(const Batch& batch);  // loss and gradient norm: float64 [2], gradients complete

  GraphSpec graph_;
  Mesh mesh_;
  TrainerOptions options_;
  Tables tables_;
  std::unique_ptr<ParameterStore> store_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<bool> autograd_units_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Action> actions_;
  std::int64_t steps_done_ = 0;
};

}  // namespace orthant
