// Whether a trainer's steps can be recorded (Note [Recorded steps]), and by whom. Local.
#pragma once

#include <memory>

#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"
#include "orthant/runtime/device_recording.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

// Null where the options or the trainer's work forbid it; the options' `say` is told why, where somebody might expect
// otherwise. ConfigError where the options ask for what cannot be. `host_waits`: the host reads a step's numbers, or
// gives it some, in its middle.
std::unique_ptr<DeviceRecorder> step_recorder(const TrainerOptions& options, const GraphSpec& graph, const Mesh& mesh,
                                              bool host_waits);

}  // namespace orthant
