// Watches the steps of a trainer for values that are not finite, and explains a step that had one. Also where faults
// are put in on purpose (train/poison.h).
//
// Note [Looking back]: a step whose numbers are not finite makes no update, on any rank: these numbers are summed over
// all ranks. What each rank saw lies in a FiniteWatch; what its parameters and gradients hold is noted on a device by
// an EntryWatch. The host reads both after it has read the numbers, while the next step is under way. Where no notes
// are taken, the watch looks at the numbers just before the first gradient of the next step is written, and then at the
// buffers. A good step costs nothing more. Where gradients overflowed and a smaller loss scale may mend it, nothing is
// noted.
//
// Note [Late logits]: what a loss alone reads (logits are by far the largest value there is) is looked at on the CPU
// only when that loss is not finite: a value that is not finite in it makes the loss so. Likewise the gradient that a
// loss hands back.
//
// Note [What is watched]: every output and every gradient that units hand on; every use's gradient of a parameter where
// it is added to others; the optimizer's copy of every parameter. The last two count in the verdict of a step: a rank's
// copy of what another rank answers for (norm weights over tp) is in no norm, and a table's row that no token needs is
// in no loss. Updates that are kernels say of what they write whether it is finite (Optimizer::parameters_verdict()):
// all parameters are looked at only after something else wrote them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "orthant/comm/control_group.h"
#include "orthant/runtime/executor.h"
#include "orthant/runtime/finite_watch.h"
#include "orthant/train/bad_step.h"
#include "orthant/train/entry_watch.h"
#include "orthant/train/pending_step.h"
#include "orthant/train/poison.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

class StepWatch : public UnitObserver {
 public:
  // Keeps references to the graph and the store, whose use listener it is. `runs_here`: the units of this rank.
  StepWatch(const GraphSpec& graph, ParameterStore& store, const TrainerOptions& options,
            const std::vector<bool>& runs_here, Poisoner poisoner);

  // `verdict`, when defined, is what updates themselves say of the parameters they wrote, see Note [What is watched].
  void trust_updates(at::Tensor verdict) { updates_verdict_ = std::move(verdict); }

  // In the order of a step. begin() is before its action list; Collective over fsdp when a parameter is damaged. What
  // is named on_device starts work there and does nothing else: it may be recorded with the step.
  void begin(std::int64_t step);
  void begin_on_device();
  void before_gradients();
  void wrote(int unit, int microbatch, Tensors& outputs) override;
  void handed_back(int unit, int microbatch, std::size_t input, const at::Tensor& gradient) override;
  // All gradients are summed.
  void summed() { poisoner_.gradient_sums(store_); }
  // 0, or NaN when something here is not finite: float64 [1] on the device. All gradients are complete.
  at::Tensor gradients_verdict() const;
  at::Tensor parameters_verdict() const;
  // `numbers`: what the step will tell, where it was computed.
  void end_on_device(const at::Tensor& numbers) const { entries_.note(numbers); }
  void end(const PendingStep& step) { newest_.step = step; }

  // Whether a fault is put into that step.
  bool disturbs(std::int64_t step) const { return poisoner_.acts_in(step); }

  // Whether the host waits for a step's numbers before the gradients of the next are made.
  bool waits_for_numbers() const { return !entries_.takes_notes(); }

  // Of the newest step whose numbers its caller has read. Alike on every rank. Collective over the world.
  BadStep explain();

 private:
  struct Record {
    std::optional<PendingStep> step;
    bool looked = false;
    RankFindings found;
  };
  struct Use {
    std::size_t buffer = 0;
    int unit = 0;
    std::int64_t first_slot = 0;
    int seen = 0;  // in this step
  };

  void make_slots();
  // The loss that a unit's outputs wait for, see Note [Late logits]; -1: none.
  int awaited_loss(const UnitSpec& unit, const std::vector<bool>& runs_here) const;
  at::Tensor look_at_parameters() const;
  std::int64_t output_slot(int unit, int microbatch) const;
  void saw_gradient(std::size_t buffer, int unit, const at::Tensor& gradient);
  void look_back(Record& record, int steps_ago) const;
  RankFindings findings(int steps_ago) const;

  const GraphSpec& graph_;
  ParameterStore& store_;
  at::Device device_;
  ControlGroup ranks_;
  Poisoner poisoner_;
  int microbatches_;
  // Slots of the watch: per output, input and use, of each microbatch; uses come last.
  std::vector<std::int64_t> output_slots_;  // per unit: of its first output
  std::vector<std::int64_t> input_slots_;   // per unit: of its first input
  std::vector<Use> uses_;                   // by unit ascending
  int looks_per_use_ = 1;
  Range use_slots_;
  std::optional<FiniteWatch> watch_;
  EntryWatch entries_;
  struct Waiting {
    std::int64_t slot = 0;
    at::Tensor output;
  };
  std::vector<int> awaited_losses_;                              // per unit
  std::map<std::pair<int, int>, std::vector<Waiting>> waiting_;  // by loss and microbatch
  at::Tensor updates_verdict_;
  std::int64_t fills_seen_ = -1;  // of the store, when all parameters were last looked at
  Record newest_;
  Record before_;
};

}  // namespace orthant
