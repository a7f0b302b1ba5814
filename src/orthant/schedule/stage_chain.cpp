#include "orthant/schedule/stage_chain.h"

namespace orthant {

bool StageChain::ready(const StageAction& action) const {
  const auto [stage, kind, microbatch] = action;
  if (kind == StageKind::F) return stage == 0 || forward_done(stage - 1, microbatch);
  if (kind == StageKind::W) return backward_done(stage, microbatch);
  return forward_done(stage, microbatch) && (stage + 1 == num_stages_ || backward_done(stage + 1, microbatch));
}

void StageChain::finish(const StageAction& action) {
  if (action.kind == StageKind::F) forward_.insert({action.stage, action.microbatch});
  if (action.kind == StageKind::B || action.kind == StageKind::BW) backward_.insert({action.stage, action.microbatch});
}

StageAction StageChain::awaited(const StageAction& action) const {
  const auto [stage, kind, microbatch] = action;
  if (kind == StageKind::F) return {stage - 1, StageKind::F, microbatch};
  if (kind == StageKind::W) return {stage, StageKind::B, microbatch};
  if (!forward_done(stage, microbatch)) return {stage, StageKind::F, microbatch};
  return {stage + 1, kind, microbatch};
}

}  // namespace orthant
