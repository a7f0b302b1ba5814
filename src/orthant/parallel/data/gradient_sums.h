// Gradients of a step summed over all ranks: partial ones over tp (tensor_partials.h), then over fsdp by reduce-scatter
// into the owned shard, then over dp by all-reduce; where nothing is sharded by one all-reduce over both. Sums over the
// data axes travel while earlier units run backward; they wait for those over tp, which are small. Last come tied
// parameters that several stages use (tied_sums.h).
//
// Note [Gradient sums]: units that finish are collected into calls as Note [Data policies] says. A reduce-scatter is
// waited for when the next one has been started, so that at most two calls' full gradients are alive; its sum over dp
// starts then. With gradients accumulated in shards, each microbatch is scattered and added, and the sum over dp comes
// once, when the step's last microbatch has been added. A hook changes what travels, not where it goes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "orthant/comm/group.h"
#include "orthant/parallel/data/flat_parameters.h"
#include "orthant/parallel/data/gradient_hook.h"
#include "orthant/parallel/data/tensor_partials.h"
#include "orthant/parallel/data/tied_sums.h"
#include "orthant/parallel/data/value_gathers.h"

namespace orthant {

struct GradientGroups {
  comm::Group shards;  // fsdp; used when zero is above 0
  comm::Group copies;  // copy_axes(): the last sum; unset when there is one
  int num_copies = 1;
};

class GradientSums {
 public:
  // Keeps references to `buffers`, `units`, `policy`, `partials` and `tied`. `units` says which buffers are summed.
  GradientSums(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
               const DataPolicy& policy, TensorPartials& partials, TiedSums& tied, GradientGroups groups,
               GradientHook hook);

  // The gradients of buffers that the unit holds are complete on this rank: those of one microbatch, or of the step
  // when `microbatch` is negative. Collective over tp and the data axes.
  void reduce(int unit, int microbatch);

  // Called, in one order, when owned_gradient() of a buffer is the sum over all ranks: within reduce() or finish().
  void set_listener(std::function<void(int buffer)> listener) { listener_ = std::move(listener); }

  // Before new gradients of the buffer are written: blocks until none of it is under way.
  void settle(int buffer);

  // Sends what is still collected and blocks until owned_gradient() of every trainable buffer is the sum. Collective.
  void finish();

 private:
  struct Scatter {
    std::vector<int> buffers;
    std::vector<at::Tensor> received;  // owned parts; undefined: the owned gradient itself
    comm::Work work;
    bool last = false;  // of the step: then comes the sum over copies
  };
  struct Sum {
    std::vector<int> buffers;
    std::vector<at::Tensor> travelling;  // encoded; empty without a hook
    comm::Work work;
  };
  struct Waiting {
    std::vector<int> units;
    std::vector<int> buffers;
  };

  void collect(int unit, int microbatch);
  void send(const std::vector<int>& buffers, int microbatch);
  void start_scatter(const std::vector<int>& buffers, bool last);
  void finish_scatter();
  void tell(const std::vector<int>& buffers) const;
  void start_sum(const std::vector<int>& buffers);
  std::vector<Subject> subjects_of(const std::vector<int>& buffers) const;

  const std::vector<std::unique_ptr<FlatParameters>>& buffers_;
  const UnitBuffers& units_;
  const DataPolicy& policy_;
  TensorPartials& partials_;
  TiedSums& tied_;
  GradientGroups groups_;
  GradientHook hook_;
  std::vector<std::size_t> group_holders_;  // per unit group: members that hold trainable buffers
  std::vector<int> bucket_;                 // zero 0 and 1
  std::int64_t bucket_bytes_ = 0;
  std::map<std::pair<int, int>, Waiting> waiting_;  // zero 2 and 3: by (unit group, microbatch)
  std::deque<Scatter> scatters_;
  std::vector<Sum> sums_;
  std::function<void(int)> listener_;
  std::vector<bool> added_;  // per buffer: its owned gradient holds an earlier microbatch
};

}  // namespace orthant
