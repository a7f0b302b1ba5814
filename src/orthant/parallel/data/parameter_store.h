// All flat buffers of a rank, each unit's way to its parameters, and their exchange with the other ranks.
#pragma once

#include <memory>
#include <span>

#include "orthant/comm/communicator.h"
#include "orthant/mesh/mesh.h"
#include "orthant/parallel/data/flat_parameters.h"
#include "orthant/parallel/data/gradient_hook.h"
#include "orthant/parallel/data/gradient_sums.h"
#include "orthant/parallel/data/value_gathers.h"

namespace orthant {

// What a unit sees: its own and borrowed parameters, by the part of their name after the owner's.
class UnitParameters {
 public:
  UnitParameters(const GraphSpec& graph, int unit, std::vector<FlatParameters*> buffers)
      : graph_(&graph),
        spec_(&graph.units[static_cast<std::size_t>(unit)]),
        unit_(unit),
        buffers_(std::move(buffers)) {}

  // "norm1.weight" in unit layers.3 is layers.3.norm1.weight, or the borrowed parameter whose name ends so or is that.
  // InternalError when there is none; find() gives nullptr.
  nn::Parameter& operator[](std::string_view relative) const;
  nn::Parameter* find(std::string_view relative) const;
  nn::Parameter& joined(std::string_view label) const;
  // By full name.
  nn::Parameter& named(std::string_view full) const;

  // First values of a parameter whose Init is `given`, by full name; whole tensors.
  void set_initial(std::string_view full, const at::Tensor& values) const;

  const UnitSpec& spec() const { return *spec_; }
  const GraphSpec& graph() const { return *graph_; }

 private:
  const GraphSpec* graph_;
  const UnitSpec* spec_;
  int unit_;
  std::vector<FlatParameters*> buffers_;
};

// How a rank's buffers are kept and with whom they are exchanged. The default is one rank.
struct StoreOptions {
  DataPolicy policy;                     // made effective by the store
  std::vector<int> unit_groups;          // per unit, see layout/unit_groups.h; empty: every unit alone
  std::vector<int> unit_pp_coordinates;  // per unit: its pp coordinate; empty: one stage
  GradientHook hook;
  const comm::Communicator* communicator = nullptr;  // null: one rank. Has store_groups(); outlives the store
  MakeBuffer make_host;                              // for what is offloaded; the store's `make` when empty
};

// The groups of ranks that a store of that policy talks to, besides copy_groups(), tied_groups() and expert_groups();
// for the communicator.
std::vector<comm::GroupRequest> store_groups(const Mesh& mesh, const DataPolicy& policy);

// Those of experts on a mesh of their own: shards and copies of it. None for a graph without such experts.
std::vector<comm::SubgroupRequest> expert_groups(const GraphSpec& graph, const Mesh& mesh, const DataPolicy& policy);
// The same where so many tp ranks share each expert.
std::vector<comm::SubgroupRequest> expert_groups(const Mesh& mesh, int expert_tp, const DataPolicy& policy);

class ParameterStore {
 public:
  // The buffers of this rank's units, on the device of `make`. Keeps a reference to `graph`.
  ParameterStore(const GraphSpec& graph, const Mesh& mesh, int rank, const Precision& precision, const MakeBuffer& make,
                 StoreOptions options = {});
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // Draws the owned values. Collective over fsdp.
  void initialise(std::uint64_t seed, const DrawnParameters& drawn = {});
  // Whether the unit runs on this rank. unit() is for those alone.
  bool runs(int unit) const { return runs_at(unit, unit_pp_coordinates_, mesh_.coordinate(rank_)[Axis::pp]); }
  UnitParameters unit(int unit);

  // Before the optimizer's copies are written: blocks until no gather reads or writes them any more.
  void settle_values();
  // After the optimizer's copies were filled from outside: full values follow. publish_update() after an update: only
  // trainable ones do; `copied`: the update has written what is to be gathered. Collective over fsdp.
  void publish();
  // The same for frozen ones.
  void publish_frozen();
  void publish_update(bool copied = false);
  // Calls of publish() so far.
  std::int64_t num_fills() const { return fills_; }

  // Called in the order of an action list. See ValueGathers and GradientSums.
  void gather(int unit);
  void free(int unit);
  void need_values(int unit);
  void need_gradients(int unit);
  void reduce(int unit, int microbatch);

  void set_sum_listener(const std::function<void(int buffer)>& listener);

  // Called with the gradient of each unit's use of a trainable buffer when it is complete on this rank and not yet
  // added to any other: of one microbatch where gradients are accumulated in shards, else of the step.
  void set_use_listener(const std::function<void(std::size_t buffer, int unit, const at::Tensor& gradient)>& listener);
  // Whether the gradient that the optimizer reads is made of more than one use on one rank.
  bool adds_gradients(std::size_t buffer) const;

  // `zero_gradients[u]`: unit u's gradients come from autograd.
  void begin_step(const std::vector<bool>& zero_gradients);
  // Blocks until gradients are sums over all replicas. Returns the names of trainable parameters without one.
  std::vector<std::string> finish_gradients();
  // Without an action list: all units are reduced, the last first.
  std::vector<std::string> complete_gradients();

  const std::vector<std::unique_ptr<FlatParameters>>& buffers() const { return buffers_; }
  // Whether this rank's stage owns the buffer: it alone saves and counts it.
  bool answers(std::size_t buffer) const { return units_.owner_here[buffer]; }
  // The unit that owns buffer i.
  int owner(std::size_t buffer) const { return buffers_[buffer]->layout().owner; }
  const GraphSpec& graph() const { return graph_; }
  const DataPolicy& policy() const { return policy_; }
  // parameter_mesh() of the mesh.
  const Mesh& mesh() const { return mesh_; }
  // Ranges of the buffer that this rank answers for, a part of what it owns: over all ranks of the mesh each element of
  // the model is in exactly one such range. Padding, which is zero, may be in any range. Empty when another stage owns
  // the buffer.
  std::vector<Range> answered(std::size_t buffer) const;
  // Memory that was made for all buffers: for good, and for those that come and go.
  std::int64_t bytes() const { return bytes_ + pool_.bytes(); }
  std::int64_t kept_bytes() const { return bytes_; }
  // Of bytes(), on the device now: values and the optimizer's copy of them, and gradients. Blocks that wait for their
  // next use are neither.
  std::int64_t value_bytes() const;
  std::int64_t gradient_bytes() const;
  // The most that gathered values and full gradients took at one time, where they come and go.
  std::int64_t gathered_peak() const { return gathered_.peak; }
  std::int64_t gradients_peak() const { return gradients_.peak; }

  // A whole flat tensor from owned parts of it. Collective over fsdp.
  at::Tensor whole(std::size_t buffer, const at::Tensor& owned) const;

 private:
  // Buffers that lie on one mesh, and their exchange: all but experts, or experts. See Note [Mesh of experts].
  struct View {
    DataPolicy policy;
    UnitBuffers units;
    comm::Group shards;
    std::unique_ptr<ValueGathers> gathers;
    std::unique_ptr<TensorPartials> partials;
    std::unique_ptr<TiedSums> tied;
    std::unique_ptr<GradientSums> sums;
  };

  View& view_of(std::size_t buffer) const;
  void add_view(const GraphSpec& graph, const Mesh& mesh, const StoreOptions& options, bool experts);

  const GraphSpec& graph_;
  DataPolicy policy_;
  std::int64_t bytes_ = 0;
  std::int64_t fills_ = 0;
  BufferPool pool_;
  LiveBytes gathered_;
  LiveBytes gradients_;
  std::vector<std::unique_ptr<FlatParameters>> buffers_;
  UnitBuffers units_;
  Mesh mesh_;
  int rank_ = 0;
  std::vector<int> unit_pp_coordinates_;
  std::vector<std::unique_ptr<View>> views_;  // the second: experts, where they have a mesh of their own
};

}  // namespace orthant
