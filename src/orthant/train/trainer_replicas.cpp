// A trainer's part of train.verify_replicas: when ranks are compared, and what follows from a difference.
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/train/replica_watch.h"
#include "orthant/train/trainer.h"

namespace orthant {

bool Trainer::compares_replicas() const {
  return replicas_ && replicas_->due(steps_done_ + 1);
}

void Trainer::throw_differing(const ReplicaReport& found, const std::string& when) const {
  const auto text = fmt::format("{}: {}", when, found.text);
  const std::string remedy =
      "look at the memory, processor and cards of that host, and leave it out; --resume auto goes on from the last "
      "checkpoint, before which parameters were compared";
  if (!found.decided) throw DataError(text, control_group(options_).alike(remedy));
  throw DataError(text, {.remedy = remedy, .rank = found.odd.front()});
}

at::Tensor Trainer::with_equal_replicas(const StepInputs& inputs, const at::Tensor& numbers) {
  const trace::Span span(recorder_.get(), trace::phase(recorder_.get(), "replicas"));
  const auto step = fmt::format("step {}", steps_done_ + 1);
  auto first = replicas_->look(/*gradients=*/true);
  if (first.equal) return numbers;
  if (!first.gradients_alone) throw_differing(first, step);
  const auto again = run(inputs);
  const auto second = replicas_->look(/*gradients=*/true);
  const auto changed = replicas_->changed_between_looks();
  if (!changed.empty()) {
    first.odd = changed;
    first.decided = true;
  }
  if (!second.equal) {
    first.text += "; done again, the step differed again: a persistent fault";
    throw_differing(first, step);
  }
  if (options_.say) {
    options_.say(
        fmt::format("{}: {}; done again, the step left all equal, with other gradients on {}: a transient fault; "
                    "training goes on",
                    step, first.text, ranks_text(changed)));
  }
  return again;
}

void Trainer::check_replicas() {
  if (!replicas_) return;
  const auto found = replicas_->look(/*gradients=*/false);
  if (!found.equal) throw_differing(found, fmt::format("after step {}", steps_done_));
}

}  // namespace orthant
