// The executor: runs a rank's action list over its units, each by its programs (unit.h); values and gradients are
// handed across edges here. One rank, DDP, FSDP and every pipeline use it.
//
// Note [Order of sums]: bits do not depend on where stages are cut or in which order a schedule visits them. The
// gradient of each consumer of a value is kept apart and the producer adds them in decreasing unit order; a unit adds
// its weight gradients in increasing microbatch order; losses are added in microbatch order at the end. Values and
// gradients lie densely in memory on every edge, as they do when they have travelled: kernels may add in another order
// where they do not. A tied parameter whose users are cut apart is the exception beside dp and fsdp: its gradients are
// then summed over the data axes first and over the stages last (parallel/data/tied_sums.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/parallel/pipeline/stage_links.h"
#include "orthant/runtime/lanes.h"
#include "orthant/runtime/unit.h"
#include "orthant/schedule/actions.h"
#include "orthant/trace/event.h"

namespace orthant::launch {
class Activity;
}

namespace orthant::trace {
class Recorder;
}

namespace orthant {

// The rows of one microbatch: batch fields by name, dim 0 = rows.
struct Microbatch {
  std::map<std::string, at::Tensor> fields;
  std::int64_t first_row = 0;                            // of its rows, counted in the global batch
  std::map<std::string, nn::TokenRows> token_rows = {};  // of unpadded fields, by the field of ids
};

// What a step needs besides its microbatches.
struct StepFacts {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  // Gradient of each loss value (by name), a float64 scalar on the device: coefficient / global sum of target weights.
  // 1 when absent.
  std::map<std::string, at::Tensor> loss_factors = {};
  at::Tensor loss_scale = {};                 // and times this: a float64 scalar on the device; 1 when undefined
  bool repeatable = true;                     // every sum has one order: equal bits in every run
  nn::ProductPlans* products = nullptr;       // by which products are computed; null: libtorch's choice
  nn::DeviceStreams* streams = nullptr;       // where a device finds the streams of dropout sites; null: on the CPU
  Lanes* lanes = nullptr;                     // on which units of a device run; null: all on the current stream
  const nn::CachedStep* cached = nullptr;     // of a generation
  std::vector<nn::KeyCache>* keys = nullptr;  // per unit; of a generation
  launch::Activity* activity = nullptr;       // told what the rank is about to do; null: nobody is
  trace::Recorder* recorder = nullptr;        // of actions and operations; null: nobody records
  bool wait_for_device = false;               // at both ends of each action, so that its time is that of its work
};

// Whoever keeps the parameters, told in list order what the executor is about to do and has done.
class ParameterKeeper {
 public:
  virtual ~ParameterKeeper() = default;
  virtual void gather(int /*unit*/) {}
  virtual void free(int /*unit*/) {}
  virtual void need_values(int /*unit*/) {}  // forward or backward is about to read the unit's parameters
  // Backward, or a forward that makes gradients, is about to add to the unit's gradients.
  virtual void need_gradients(int /*unit*/) {}
  // The unit's weight gradients are complete on this rank: those of one microbatch, or of the step when negative.
  virtual void reduce(int /*unit*/, int /*microbatch*/) {}
  // An action has thrown. All that earlier ones keep is still alive.
  virtual void failed() noexcept {}
};

// Whoever looks at what units make, in list order, before it is handed on.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  // After a forward of train(), not after a recomputed one. An output may be replaced by a tensor of the same shape
  // and dtype.
  virtual void wrote(int /*unit*/, int /*microbatch*/, Tensors& /*outputs*/) {}
  // After a backward, for that input of the unit; undefined when no gradient reached it.
  virtual void handed_back(int /*unit*/, int /*microbatch*/, std::size_t /*input*/, const at::Tensor& /*gradient*/) {}
};

// The ranks with which a rank runs its units; null where there are none.
struct Peers {
  nn::TensorAxis* tensor = nullptr;    // share each unit
  nn::ContextAxis* context = nullptr;  // share each row
  nn::ExpertAxis* experts = nullptr;   // hold other experts
  StageLinks* links = nullptr;         // run other stages
};

class Executor {
 public:
  // `units[u]` runs unit u; null for units of other ranks. Keeps references to graph, units and peers.
  // `remade`: operations whose results are made again, beside what `recompute` says.
  Executor(const GraphSpec& graph, const std::vector<std::unique_ptr<Unit>>& units, Recompute recompute,
           const Peers& peers = {}, const std::vector<std::string>& remade = {});

  // Runs the list: forward and backward of every microbatch. Returns each loss of this rank's units as a float64 scalar
  // on the device: the sum over microbatches, not divided. Throws InternalError when the list asks for what is not
  // there.
  std::map<std::string, at::Tensor> train(const std::vector<Action>& actions,
                                          const std::vector<Microbatch>& microbatches, const StepFacts& facts,
                                          ParameterKeeper* keeper = nullptr);

  // Of the newest train(), per unit: slots of this rank's tokens that choose each of its experts, and those that were
  // dropped, [experts + 1] int64 on the device. Undefined for units without experts and of other ranks.
  const std::vector<at::Tensor>& expert_loads() const { return expert_loads_; }

  // Runs a list of forwards, without gradients and dropout. Returns those of the named values of the microbatch that
  // this rank's units write, whole on every tp rank. What goes to later stages may still be on its way then.
  std::map<std::string, at::Tensor> evaluate(const std::vector<Action>& actions, const Microbatch& microbatch,
                                             const StepFacts& facts, const std::vector<std::string>& wanted,
                                             ParameterKeeper* keeper = nullptr);

  // Per unit the stage that it belongs to, which events tell.
  void set_unit_stages(std::vector<int> stages) { unit_stages_ = std::move(stages); }

  // From now on `observer` is told of all outputs and gradients that train() makes; null ends that.
  void observe(UnitObserver* observer) { observer_ = observer; }

  // Whether the unit takes part in backward: it has trainable parameters or an input that needs a gradient.
  bool has_backward(int unit) const { return wirings_[static_cast<std::size_t>(unit)].has_backward; }

 private:
  struct Input {
    std::string name;
    int value = -1;  // index into GraphSpec::values; -1 for a batch field
    bool needs_gradient = false;
  };
  struct UnitWiring {
    std::vector<Input> inputs;
    std::vector<int> outputs;
    bool has_backward = false;
    bool owns_inputs = false;  // sole reader of all its values, and no module has written one
    std::string tokens_of;     // the batch field whose tokens it works on; empty: none
  };
  struct UnitRun;  // one unit, one microbatch, between its forward and the end of its backward
  struct Step;     // everything that lives for one call of train() or evaluate()

  // The text of each action of a list and what it is recorded as, made when the list is another one than before.
  struct Texts {
    std::vector<Action> actions;
    std::vector<std::string> texts;
    const trace::Recorder* recorder = nullptr;
    std::vector<trace::Event> events;
  };

  void make_wirings(Recompute recompute, const std::vector<std::string>& remade);
  void make_texts(const std::vector<Action>& actions, trace::Recorder* recorder, Texts& texts) const;
  trace::Event event_of(const Action& action, trace::Recorder& recorder) const;
  void begin_list(Step& step, const std::vector<Action>& actions);
  void run(Step& step, const Action& action, ParameterKeeper* keeper);
  void act(Step& step, const Action& action, ParameterKeeper* keeper);
  void exchange(Step& step, const Action& action);
  StageLinks::Form form_of(const Step& step, const Action& action) const;
  void put_value(Step& step, int value, int m, const at::Tensor& tensor) const;
  at::Tensor take_value(Step& step, int value, int m) const;
  void forward(Step& step, int unit, int m);
  void backward(Step& step, int unit, int m, bool defer_weights);
  static Tensors input_gradients(UnitRun& run, Tensors gradients, bool defer_weights);
  void run_deferred(Step& step, int unit, int m);
  void prepare(const Step& step, const Action& action, ParameterKeeper& keeper) const;
  void begin_pass(Frame& frame, const Step& step, int unit, int m) const;
  at::Tensor whole_value(int value, const at::Tensor& held, const nn::Pass& pass) const;
  Tensors take_inputs(Step& step, int unit, int m);
  at::Tensor gradient_of(Step& step, int value, int m, const at::TensorOptions& loss_options);
  at::Tensor loss_gradient(const Step& step, int value, const at::TensorOptions& options) const;

  const GraphSpec& graph_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  nn::TensorAxis* tensor_;
  nn::ContextAxis* context_;
  nn::ExpertAxis* experts_;
  StageLinks* links_;
  std::vector<int> unit_stages_;
  UnitObserver* observer_ = nullptr;
  std::vector<UnitWiring> wirings_;
  std::vector<int> makers_;                // per value: the unit that writes it
  std::vector<std::vector<int>> readers_;  // per value: consuming units of all ranks, ascending
  std::vector<int> local_readers_;         // per value: how many of them are here
  std::vector<at::Tensor> expert_loads_;
  std::map<std::string, int> value_index_;
  std::vector<bool> is_loss_;  // per value
  // Per value: a loss of this rank. Units that work on rows alone run on every cp rank, but the first tokens that they
  // read are coordinate 0's: its loss counts, and those of the others have gradients of zero.
  std::vector<bool> loss_counts_;
  Texts trained_;
  Texts evaluated_;
};

}  // namespace orthant
