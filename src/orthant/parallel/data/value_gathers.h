// Full values of sharded buffers: gathered before they are used, freed after it, or gathered once after an update. The
// order of calls is that of the action list, which is alike on all ranks of the fsdp axis.
#pragma once

#include <memory>
#include <vector>

#include "orthant/comm/group.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/parallel/data/flat_parameters.h"

namespace orthant {

class ValueGathers {
 public:
  // Keeps references to all three. `units` says which buffers; `group`: the fsdp axis of the mesh they lie on.
  ValueGathers(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
               const DataPolicy& policy, comm::Group group);

  // Starts to gather the unit's values; the call is made with the last member of its group. Collective over fsdp.
  void gather(int unit);
  // The unit no longer needs them: their memory goes unless another user of a tied buffer still holds it. Local.
  void free(int unit);
  // Blocks until the unit's values are readable. InternalError when they were not gathered.
  void need(int unit);

  // After a change of the optimizer's copies: full values that stay in memory are gathered anew; need() waits for them.
  // Collective over fsdp.
  enum class Changed {
    all,
    trainable,         // of trainable buffers alone
    frozen,            // of the others
    trainable_copied,  // and FlatParameters::published() follows them already
  };
  void publish(Changed changed);

  // Waits for what is still under way.
  void finish();

 private:
  struct Flight {
    comm::Work work;
    bool arrived = false;
  };

  void start(const std::vector<int>& buffers);
  void wait(int buffer);

  const std::vector<std::unique_ptr<FlatParameters>>& buffers_;
  const UnitBuffers& units_;
  const DataPolicy& policy_;
  comm::Group group_;
  std::vector<int> last_member_;                  // per group
  std::vector<int> waiting_;                      // units of a group that is not yet complete
  std::vector<int> holders_;                      // per buffer
  std::vector<std::shared_ptr<Flight>> flights_;  // per buffer; null when nothing is under way
};

}  // namespace orthant
