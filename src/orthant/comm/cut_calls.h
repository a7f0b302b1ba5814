// Exchanges of a step that is recorded in pieces, where no graph may hold them. Internal to this layer.
//
// Note [Cut at exchanges]: messages of stages stand in no order that all ranks share, so that no graph holds them (Note
// [Recorded exchanges]). A step with messages is recorded in pieces: it is cut where a call is started and where one is
// waited for, and each play makes the calls between the pieces as a step that is not recorded makes them, in the same
// order, counted, watched and told alike. While the step is recorded nothing travels. Tensors of a step lie where they
// lay in every play, so calls remember places alone: the memory is the recording's, which gives it to others within the
// step when the recorded program lets go of it.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "orthant/comm/group.h"
#include "orthant/comm/transport.h"

namespace orthant::comm {

// Ends the piece that is being recorded; plays call what is given behind it, before the next one.
using Cut = std::function<void(std::function<void()>)>;

struct Cuts {
  Cut cut;
  at::Device device;  // of the step
};

// For a call of a step that is being recorded. Its wait() cuts, too. ConfigError for tensors that are not on the
// step's device, whose contents a play would not find.
std::unique_ptr<Pending> cut_at_call(const Cuts& cuts, const Group& group, const Call& call);

}  // namespace orthant::comm
