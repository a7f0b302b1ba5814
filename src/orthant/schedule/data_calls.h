// Which buffers share a call, and when it is made: the collectives of data parallelism that a list of actions leads to.
// What they cost is told by data_traffic.h, what is alive meanwhile by data_state.h. See Note [Data policies].
#pragma once

#include <cstddef>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/schedule/actions.h"

namespace orthant {

struct DataCall {
  std::size_t position = 0;  // of the action that makes it; the list's length: at the end of the step
  int microbatch = -1;       // of a reduction: that microbatch's gradients; -1: the step's
  std::vector<int> buffers = {};
};

// One per group that becomes full, over the buffers that are not full already: another user of a tied buffer may hold
// it.
std::vector<DataCall> gather_calls(const UnitBuffers& buffers, const std::vector<Action>& actions);

// With zero 0 and 1 a call is made as soon as the gradients of units that finished one after another have bucket_bytes
// (in the reduce dtype), the rest at the end; with 2 and 3 when the last unit of a group has finished. With gradients
// accumulated in shards, once for every microbatch and once for the step.
std::vector<DataCall> gradient_calls(const UnitBuffers& buffers, const DataSettings& settings,
                                     const std::vector<Action>& actions);

}  // namespace orthant
