// The trainer: a graph of units, its parameters in flat buffers, a schedule, an optimizer; one call makes one step. The
// command line and a user's program use the same class.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orthant/checkpoint/checkpointed.h"
#include "orthant/data/batch.h"
#include "orthant/nn/device_streams.h"
#include "orthant/nn/tables.h"
#include "orthant/runtime/executor.h"
#include "orthant/trace/recorder.h"
#include "orthant/train/bad_step.h"
#include "orthant/train/pending_step.h"
#include "orthant/train/recorded_steps.h"
#include "orthant/train/trainer_setup.h"

namespace orthant {

class Graph;
class RunProfiler;
class MeasuredPlans;
class ReplicaWatch;
struct ReplicaReport;
class StepWatch;

// What a rank tells all others with a step.
struct RankReport {
  bool stop = false;                   // it was asked to stop
  bool saving = false;                 // it still writes a checkpoint in the background
  bool save_due = false;               // by its clock it is time for a checkpoint
  std::int64_t peak_memory_bytes = 0;  // so far
  double busy_seconds = 0;             // of its step before: what it did not wait for others
};

// Makes the units once the parameters exist.
using MakeUnits = std::function<std::vector<std::unique_ptr<Unit>>(ParameterStore&, Tables&)>;

class Trainer : public Checkpointed {
 public:
  // Resolves the graph for tp, draws the initial weights and validates the schedule. ConfigError for what cannot run:
  // axes that training does not use, fewer units than stages. Collective, as are step(), evaluate(), weights_hash(),
  // save() and load().
  Trainer(GraphSpec graph, const MakeUnits& make_units, const Mesh& mesh, TrainerOptions options);
  // A user's own graph. Its modules start from rank 0's values, and run whole on every tp rank.
  Trainer(const Graph& graph, const Mesh& mesh, TrainerOptions options);
  ~Trainer() override;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Forward and backward of all microbatches, global norm, clip, update. The first step is step 1.
  PendingStep step(const Batch& batch, const RankReport& report = {});

  CheckpointedTensors checkpointed() const override;
  std::uint64_t seed() const override { return options_.seed; }
  TrainingProgress progress() const override;
  void set_progress(const TrainingProgress& progress) override;
  void hold_update(std::shared_future<void> until) override { readers_ = std::move(until); }
  void await_readers() override;
  double seconds_held() const { return seconds_held_; }  // by all waits for readers. Local

  // With options().verify_replicas: DataError where ranks differ in parameters that they hold alike. For before a save;
  // step() compares by itself every so many steps, and throws on all ranks. Collective over the world.
  void check_replicas();

  // Why the numbers of the newest step whose get() was called are not finite (PendingStep::Numbers::bad). Valid until
  // step() is called for the second time after it. Every rank must ask, and every rank gets the same answer.
  BadStep explain_bad_step();

  // This rank's share of a global batch that every rank has: for programs without a Loader. ConfigError when the rows
  // do not divide among replicas and microbatches.
  Batch own_rows(const Batch& whole) const;

  // Gradients alone: no update, and the step is not counted. They lie in parameters() until the next call.
  PendingStep gradients(const Batch& batch);

  // The named values of some rows, without gradients and dropout; with pad_to_longest they have that length. A rank
  // gets the values that its stages write.
  std::map<std::string, at::Tensor> evaluate(const Fields& fields, const std::vector<std::string>& wanted);

  std::int64_t steps_done() const override { return steps_done_; }
  double lr() const { return options_.lr.at(steps_done_ + 1); }  // of the next step
  std::uint64_t weights_hash() const;                            // of all ranks, see weights_hash.h

  // A checkpoint folder: parameters, optimizer state, step. Atomic. load() takes it back and refuses one of another
  // model.
  void save(const std::string& folder) const;
  void load(const std::string& folder);

  const GraphSpec& graph() const { return graph_; }  // resolved
  const Pipeline& pipeline() const { return pipeline_; }
  ParameterStore& parameters() { return *store_; }
  const ParameterStore& parameters() const { return *store_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  LossScale& loss_scale() { return *loss_scale_; }
  const LossScale& loss_scale() const { return *loss_scale_; }
  const TrainerOptions& options() const { return options_; }
  const RecordedSteps& recorded_steps() const { return *recorded_; }
  MeasuredPlans* measured_plans() { return products_.get(); }  // null unless plans are measured
  const std::vector<Action>& actions() const { return actions_; }
  // What this rank does and when; docs/profile.md.
  trace::Recorder& recorder() const { return *recorder_; }
  // Records the steps from now on until it is destroyed: every operation, exchange and wait; see run_profile.h.
  std::unique_ptr<RunProfiler> profile();
  // Called after each step with its number, when the host is done with it. Local.
  void after_step(std::function<void(std::int64_t step)> callback) { after_step_ = std::move(callback); }
  // While actions are timed a device's step is not played back, and each action waits for the device.
  void time_actions(bool on) { times_actions_ = on; }
  // Memory of group buffers, which the CPU's counting allocator does not see; 0 on one rank and on a device.
  std::int64_t exchanged_bytes() const;
  // Of tensors on the device when an action of a step threw, what the step had kept included; 0: none has.
  std::int64_t bytes_at_failure() const;
  const Mesh& mesh() const { return mesh_; }
  void set_steps_done(std::int64_t steps);
  int rank() const { return options_.communicator ? options_.communicator->rank() : 0; }

 private:
  class StoreKeeper;

  void make_store();
  void make_recorder();
  // Whether microbatches of training lose their padding where options ask for it.
  void choose_padding();
  // What lengths without padding are rounded up to a multiple of.
  std::int64_t length_step(const Fields& fields) const;
  std::vector<Microbatch> microbatches(const Batch& batch) const;
  // On the host, or where the batch is.
  StepInputs step_inputs(const Batch& batch, const RankReport& report) const;
  // What the host does before a step's work is started or played back.
  void begin_step();
  void check_finished() const;
  void begin_list();
  // Both start a step's work on inputs that lie on its device, and nothing else. The first: until gradients are
  // complete, to the numbers of a PendingStep; the second: the update by them, too.
  // `lanes`: branches may run side by side.
  at::Tensor run(const StepInputs& inputs, bool lanes = false);
  at::Tensor run_and_update(const StepInputs& inputs, bool lanes = false);
  // Of a step that is started kernel by kernel.
  bool may_use_lanes(const StepInputs& inputs) const;
  at::Tensor record(const StepInputs& inputs);
  at::Tensor record_pieces(const StepInputs& inputs);  // of several ranks that send messages
  // Whether the next step is one after which ranks are compared.
  bool compares_replicas() const;
  [[noreturn]] void throw_differing(const ReplicaReport& found, const std::string& when) const;
  // Gradients that replicas hold alike, see Note [A step done again]; the numbers of the run that made them.
  at::Tensor with_equal_replicas(const StepInputs& inputs, const at::Tensor& numbers);
  // What is called after each play of what was just recorded, with whether it is not the first; empty: nothing.
  std::function<void(bool again)> counting_of_plays();
  at::Tensor own_expert_loads() const;
  at::Tensor summed(const std::map<std::string, at::Tensor>& losses, const StepFacts& facts, const StepInputs& inputs);

  GraphSpec graph_;
  Mesh mesh_;
  TrainerOptions options_;
  bool unpadded_ = false;
  std::shared_ptr<trace::Recorder> recorder_;
  Pipeline pipeline_;
  Tables tables_;
  std::unique_ptr<nn::TensorAxis> tensor_;    // null on one tp rank
  std::unique_ptr<nn::ContextAxis> context_;  // null on one cp rank
  std::unique_ptr<nn::ExpertAxis> experts_;   // null on one ep rank
  std::unique_ptr<StageLinks> links_;         // null when pp is 1
  std::unique_ptr<ParameterStore> store_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<bool> module_units_;  // per unit
  std::set<std::string> auxiliary_losses_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScale> loss_scale_;
  std::unique_ptr<MeasuredPlans> products_;
  std::unique_ptr<nn::DeviceStreams> streams_;  // null on the CPU
  std::unique_ptr<Lanes> lanes_;                // null: no branches run side by side
  std::int64_t device_bytes_ = 0;
  std::unique_ptr<RecordedSteps> recorded_;
  std::shared_ptr<const comm::RecordedCalls> recorded_calls_;  // of the newest recording
  std::unique_ptr<StepWatch> watch_;
  std::unique_ptr<StoreKeeper> keeper_;
  std::unique_ptr<ReplicaWatch> replicas_;  // null: nothing is compared
  std::vector<Action> actions_;
  std::vector<Action> evaluation_actions_;
  std::int64_t steps_done_ = 0;
  std::shared_future<void> readers_;
  double seconds_held_ = 0;
  std::function<void(std::int64_t)> after_step_;
  bool times_actions_ = false;
  bool unfinished_ = false;   // a list has begun and not ended
  bool has_stepped_ = false;  // the first step may compile and is part of the start
};

}  // namespace orthant
