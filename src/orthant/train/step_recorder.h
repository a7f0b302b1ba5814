// Whether a trainer's steps can be recorded (Note [Recorded steps]), and by whom. Local.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"
#include "orthant/runtime/device_recording.h"
#include "orthant/runtime/lanes.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

// Null where the options or the trainer's work forbid it; the options' `say` is told why, where somebody might expect
// otherwise. ConfigError where the options ask for what cannot be. `host_waits`: the host reads a step's numbers, or
// gives it some, in its middle.
std::unique_ptr<DeviceRecorder> step_recorder(const TrainerOptions& options, const GraphSpec& graph, const Mesh& mesh,
                                              bool host_waits);

// Whether a recorded step is cut where its ranks exchange: they send messages, which no graph holds (Note [Cut at
// exchanges] in comm/cut_calls.h). Else its exchanges are collectives, and in the graph.
bool cuts_at_exchanges(const Mesh& mesh);

// For branches of a step that may run side by side, recorded or not: on one rank with a CUDA device, where the host
// takes no part in the step. Several ranks have none: whoever waits for an exchange lets one stream wait, and others
// would read what has not come. Null where there are none.
std::unique_ptr<Lanes> step_lanes(const TrainerOptions& options, const GraphSpec& graph, const Mesh& mesh,
                                  bool host_waits);

// Whether memory lets a step that is not recorded use them. Each stream has memory of its own, at most what the step
// takes on one: so while torch's allocator holds at most half of the device.
bool lanes_fit(std::int64_t reserved_bytes, std::int64_t device_bytes);

// Why a step whose ranks exchange over `backend` is started kernel by kernel; empty: it can be recorded. `records`: of
// the communicator. All ranks must record the same steps, and start collectives in one order: see Note [Recorded
// exchanges] in comm/recorded_exchanges.h.
std::string exchange_obstacle(std::string_view backend, bool records, const TrainerOptions& options, const Mesh& mesh);

// Why the host takes part in a step of a model with experts: it waits for counts of their rows; empty: it does not, or
// there are none. The graph is a trainer's (trainer_graph). All ranks are told the same.
std::string experts_obstacle(const Precision& precision, const GraphSpec& graph, const Mesh& mesh);

}  // namespace orthant
