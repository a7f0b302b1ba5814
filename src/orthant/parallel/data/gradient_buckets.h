// The gradients of a module's parameters in flat buffers that are averaged over ranks while backward still runs. Owns
// the buffers and the hooks on the parameters. One thread at a time: autograd's thread of the parameters' device.
//
// Note [Buckets]
// Parameters, last registered first, fill buckets of one dtype; a bucket is one flat buffer, and .grad of its
// parameters are views of it. A post-accumulate hook counts them. A gradient that is not the view (the first one, and
// every first one after zero_grad() has dropped them) is copied into it. A complete bucket starts its all-reduce while
// backward goes on; buckets start in one order everywhere, so that early ones wait for their turn. The first hook of a
// backward asks the engine for a call at its end, which waits for all buckets and divides.
// A backward inside a backward (recomputation) ends with such a call too. There gradients may still be missing, and the
// next hook asks again; when all have come, it is the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/comm/communicator.h"
#include "orthant/parallel/data/data_parallel.h"

namespace orthant {

struct NamedParameter {
  std::string name;
  at::Tensor value;
};

class GradientBuckets {
 public:
  // Sets the hooks. ConfigError for a parameter that has one, is elsewhere than the communicator's buffers, or has a
  // dtype that cannot travel. Local.
  GradientBuckets(const comm::Communicator& communicator, comm::Group group, std::vector<NamedParameter> parameters,
                  const DataParallelOptions& options);
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  // Takes the hooks off. Gradients stay readable.
  ~GradientBuckets();

  int size() const { return static_cast<int>(buckets_.size()); }

  // While above zero, hooks do nothing.
  int& paused() { return paused_; }

 private:
  struct Slot {
    std::string name;
    at::Tensor parameter;
    at::Tensor view = {};  // of the bucket's buffer
    std::size_t bucket = 0;
    bool ready = false;  // its gradient of this backward is in the view
  };

  struct Bucket {
    at::ScalarType dtype;
    std::int64_t num_elements = 0;
    std::vector<std::size_t> slots = {};
    std::size_t num_ready = 0;
    at::Tensor flat = {};
    at::Tensor travelling = {};  // what the call sums: `flat`, or what the user's hook made of it
    comm::Work work = {};

    bool complete() const { return num_ready == slots.size(); }
  };

  class Hook;

  void check_parameters(const comm::Communicator& communicator) const;
  void fill(const comm::Communicator& communicator);
  void accumulated(std::size_t index);
  void take_gradient(Slot& slot);
  void start_complete();
  void end_of_backward();
  void take_unused();
  void define_used();
  void finish();

  comm::Group group_;
  int rank_;
  DataParallelOptions options_;
  std::vector<Slot> slots_;  // in registration order
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;        // bucket to start
  bool end_is_queued_ = false;  // the engine will call end_of_backward()
  at::Tensor has_gradient_;     // with allow_unused: per parameter, whether any rank has one
  comm::Work has_gradient_work_;
  int paused_ = 0;
};

}  // namespace orthant
