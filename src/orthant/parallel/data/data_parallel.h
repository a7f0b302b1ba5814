// Data parallelism around a user's own module and training loop: every rank holds the whole module, works on its rows,
// and finds the average of all ranks' gradients in .grad when backward() returns. Owns the gradients' memory and the
// hooks on the parameters; the module, its optimizer and the loop stay the user's. See Note [Buckets] in
// gradient_buckets.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/comm/communicator.h"
#include "orthant/parallel/data/gradient_hook.h"

namespace torch::nn {
class Module;
}

namespace orthant {

// The same on every rank.
struct DataParallelOptions {
  // Gradients travel in calls of about this many bytes; a larger parameter travels alone.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  // A parameter without a gradient counts as zero on this rank, and stays without one when no rank has it. Costs a
  // small call per backward(). Without it such a parameter is an error.
  bool allow_unused = false;
  // Buffers start as rank 0's.
  bool broadcast_buffers = true;
  GradientHook hook = {};
};

class DataParallel {
 public:
  // All ranks of the job are replicas: `DataParallel parallel(*model, orthant::join());`. Makes a communicator for the
  // module's device and closes it in the end. Parameters become rank 0's. ConfigError, on every rank, when the modules
  // or the options differ; on a module without trainable parameters. Collective over the job.
  DataParallel(torch::nn::Module& module, const launch::Job& job, DataParallelOptions options = {});

  // The same over the dp axis of a communicator that was made with groups() and outlives this object: for several
  // modules, other backends, or a mesh with further axes. Collective over dp.
  DataParallel(torch::nn::Module& module, comm::Communicator& communicator, DataParallelOptions options = {});

  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;
  // Takes its hooks off; gradients stay readable. Closes a communicator of its own, which on the rank that serves the
  // store waits for the others.
  ~DataParallel();

  // What a communicator must be made with.
  static std::vector<comm::GroupRequest> groups();

  // This rank's place among the replicas, and how many there are.
  int rank() const;
  int size() const;

  // This rank's share of a global batch, of `count` rows or along the first dimension (a view). With a mean loss and
  // equal shares the average is the gradient of the global mean; otherwise multiply the loss by
  // size() * (own rows) / count. ConfigError when a rank would have none. Local.
  Range rows(std::int64_t count) const;
  at::Tensor rows(const at::Tensor& batch) const;

  // While it lives, backward() only adds to this rank's gradients; the next one after it averages the sum.
  class [[nodiscard]] Pause {
   public:
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause() { --paused_; }

   private:
    friend class DataParallel;
    explicit Pause(int& paused) : paused_(paused) { ++paused_; }
    int& paused_;
  };
  Pause no_sync();

  // Makes the buffers (running statistics) rank 0's again. They drift apart as ranks see different rows, and nothing
  // tells when a forward begins: call it before an evaluation, or before each forward. Collective over dp.
  void broadcast_buffers();

  // Calls per backward(); 0 with one rank.
  int num_buckets() const;
  comm::Communicator& communicator() const;

 private:
  class Replica;
  std::unique_ptr<Replica> replica_;
};

}  // namespace orthant
