// The trainer: a graph of units, its parameters in flat buffers, a schedule, an optimizer; one call makes one step. The
// command line and a user's program use the same class.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/data/batch.h"
#include "orthant/graph/spec.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/layout/unit_groups.h"
#include "orthant/mesh/mesh.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/plan/data_settings.h"
#include "orthant/plan/tensor_traffic.h"
#include "orthant/runtime/executor.h"
#include "orthant/runtime/tables.h"
#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"
#include "orthant/train/loss_scale.h"
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
  std::optional<LossScaleOptions> loss_scale;  // default_loss_scale() of the precision when absent
  OptimizerOptions optimizer;
  LrSchedule lr;
  Recompute recompute = Recompute::none;
  int microbatches = 1;
  StagePlan stages;
  DataPolicy policy;    // what the fsdp axis shards, which calls are joined
  UnitGrouping units;   // which units share calls
  GradientHook hook;    // how gradients travel
  TensorPolicy tensor;  // how units lie over tp
  SkippedSums skipped;
  // Of the mesh, with trainer_groups(); null on a mesh of one rank.
  std::shared_ptr<const comm::Communicator> communicator;
  at::Device device = at::kCPU;
  bool allow_unused_parameters = false;
  bool pad_to_longest = false;  // of each microbatch, see trim_padding.h; false: batches are taken as they are
  std::map<std::string, double> loss_coefficients;  // by loss value; 1 when absent
  DrawnParameters drawn;                            // the others are zero until the caller fills them
};

// ConfigError for a mesh with axes that training does not use.
void check_mesh(const Mesh& mesh);

// The groups of ranks a trainer of that graph talks to; for the communicator it is given.
struct RankGroups {
  std::vector<comm::GroupRequest> axes;
  std::vector<comm::SubgroupRequest> subsets;  // holders of copies over tp
};
RankGroups trainer_groups(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options);

// The communicator of a trainer on this mesh, for programs: options.communicator = connect_ranks(mesh, job, options).
// Null on one rank. Blocks until all ranks have come. Without a graph: of a program's own modules.
std::shared_ptr<comm::Communicator> connect_ranks(const GraphSpec& graph, const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds = 300);
std::shared_ptr<comm::Communicator> connect_ranks(const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds = 300);

// What the closed forms of data parallelism (plan/data_traffic.h, plan/data_state.h) are computed from.
DataSettings data_settings(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options);

// What that of tensor parallelism (plan/tensor_traffic.h) is computed from.
TensorSettings tensor_settings(const Mesh& mesh, const TrainerOptions& options);

// What a step of a rank does, by the stages, schedule and policy of the options: validated and lowered. And what an
// evaluation does. Local; makes no parameters.
std::vector<Action> step_actions(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options);
std::vector<Action> evaluation_actions(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options);

// What a rank tells all others with a step.
struct RankReport {
  bool stop = false;                   // it was asked to stop
  std::int64_t peak_memory_bytes = 0;  // so far
};

// Makes the units once the parameters exist.
using MakeUnits = std::function<std::vector<std::unique_ptr<Unit>>(ParameterStore&, Tables&)>;

// The numbers of a step while they are still on their way from the device. get() waits for them.
class PendingStep {
 public:
  PendingStep() = default;
  // Float64: loss, norm, whether a smaller loss scale may mend it, ranks that want to stop, peak memory of every rank.
  explicit PendingStep(const at::Tensor& numbers);

  // Alike on every rank.
  struct Numbers {
    double loss = 0;
    double grad_norm = 0;                // before clipping
    bool skipped = false;                // gradients overflowed: no update, and the next step has a smaller loss scale
    bool stop = false;                   // some rank was asked to stop
    std::int64_t peak_memory_bytes = 0;  // of the rank with the most
  };
  Numbers get() const;

 private:
  at::Tensor on_host_;
  std::shared_ptr<void> arrived_;  // a CUDA event
};

class Trainer {
 public:
  // Places the graph over tp, draws the initial weights and validates the schedule. ConfigError for what cannot run:
  // axes that training does not use, fewer units than stages. Collective, as are all methods but those that only read.
  Trainer(GraphSpec graph, const MakeUnits& make_units, const Mesh& mesh, TrainerOptions options);
  // A user's own modules. They start from rank 0's values. ConfigError on a mesh with tp: nothing says how to cut them.
  Trainer(const Graph& graph, const Mesh& mesh, TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Forward and backward of all microbatches, global norm, clip, update. The first step is step 1.
  PendingStep step(const Batch& batch, const RankReport& report = {});

  // This rank's share of a global batch that every rank has: for programs without a Loader. ConfigError when the rows
  // do not divide among replicas and microbatches.
  Batch own_rows(const Batch& whole) const;

  // Gradients alone: no update, and the step is not counted. They lie in parameters() until the next call.
  PendingStep gradients(const Batch& batch);

  // The named values of some rows, without gradients and dropout; with pad_to_longest they have that length.
  std::map<std::string, at::Tensor> evaluate(const Fields& fields, const std::vector<std::string>& wanted);

  std::int64_t steps_done() const { return steps_done_; }
  double lr() const { return options_.lr.at(steps_done_ + 1); }  // of the step about to be made
  std::uint64_t weights_hash() const;                            // of all ranks, see weights_hash.h

  // A checkpoint folder: parameters, optimizer state, step. Atomic. load() takes it back and refuses one of another
  // model.
  void save(const std::string& folder) const;
  void load(const std::string& folder);

  const GraphSpec& graph() const { return graph_; }  // placed
  ParameterStore& parameters() { return *store_; }
  const ParameterStore& parameters() const { return *store_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  LossScale& loss_scale() { return *loss_scale_; }
  const LossScale& loss_scale() const { return *loss_scale_; }
  const TrainerOptions& options() const { return options_; }
  const std::vector<Action>& actions() const { return actions_; }
  // Memory of group buffers, which the CPU's counting allocator does not see; 0 on one rank and on a device.
  std::int64_t exchanged_bytes() const;
  const Mesh& mesh() const { return mesh_; }
  int rank() const { return options_.communicator ? options_.communicator->rank() : 0; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }

 private:
  std::vector<Microbatch> microbatches(const Batch& batch) const;
  // The numbers of a PendingStep; gradients are complete.
  at::Tensor run(const Batch& batch, const RankReport& report);
  void begin_list();
  at::Tensor summed(const at::Tensor& loss, const RankReport& report);

  GraphSpec graph_;
  Mesh mesh_;
  TrainerOptions options_;
  Tables tables_;
  std::unique_ptr<nn::TensorAxis> tensor_;  // null on one tp rank
  std::unique_ptr<ParameterStore> store_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<bool> autograd_units_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScale> loss_scale_;
  std::unique_ptr<ParameterKeeper> keeper_;
  std::vector<Action> actions_;
  std::vector<Action> evaluation_actions_;
  std::int64_t steps_done_ = 0;
  bool unfinished_ = false;  // a list has begun and not ended
};

}  // namespace orthant
