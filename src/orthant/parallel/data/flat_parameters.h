// One flat buffer of a unit at run time: the optimizer's copy of its parameters, the copy that products use, and the
// gradients, each contiguous, with parameters as views. A policy says which of them a rank holds whole. Local: nothing
// here communicates. See Note [Buffers at run time].
//
// Note [Buffers at run time]: the layout (layout/flat_unit.h) says where each parameter lies; it is the same for all
// three buffers. A rank owns a range of it: its fsdp shard, or all when nothing is sharded. master() and
// owned_gradient() cover that range alone; values and gradients are full, but where the policy shards them they have
// memory only while they are needed (transient_buffer.h). When `params` and `compute` are one dtype, the optimizer's
// copy is the owned part of the values wherever both lie on the rank; stored in halves (master_values.h) it shares its
// upper one with them. A tied parameter is read by several units through
// one value buffer, but each use has a gradient buffer of its own: a use adds its microbatches in order, and the uses
// are added in unit order when the gradients are complete, so that bits do not depend on the schedule. Gaps between
// parameters are zero everywhere and stay zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_policy.h"
#include "orthant/layout/flat_unit.h"
#include "orthant/nn/pass.h"
#include "orthant/parallel/data/master_values.h"
#include "orthant/parallel/data/precision.h"
#include "orthant/parallel/data/transient_buffer.h"

namespace orthant {

// Whether the first values of the parameter of that name are drawn; all are when it is empty.
using DrawnParameters = std::function<bool(std::string_view parameter)>;

// Told the gradient of one unit's use of a buffer, of the buffer's whole length, when it is complete on this rank.
using UseListener = std::function<void(int unit, const at::Tensor& gradient)>;

// Where buffers come from.
struct BufferMemory {
  MakeBuffer make;       // on the device, for good
  MakeBuffer make_host;  // on the host, for what is offloaded
  BufferPool* pool;      // on the device, for a while
  LiveBytes* gathered;   // of it, values
  LiveBytes* gradients;  // and gradients
  at::Device device = at::kCPU;
};

class FlatParameters {
 public:
  // `shard`: this rank's fsdp coordinate; `policy` is effective. Keeps a reference to `graph`.
  FlatParameters(const GraphSpec& graph, FlatBuffer layout, const Precision& precision, const DataPolicy& policy,
                 int shard, const BufferMemory& memory);

  const FlatBuffer& layout() const { return layout_; }
  bool trainable() const { return layout_.trainable; }
  Range owned() const { return owned_; }
  bool owns_all() const { return owned_.size() == layout_.size; }

  // What the whole buffer belongs to, in calls between ranks. Lives as long as the buffer.
  Subject subject() const { return names_; }

  // Draws the first values of the owned range from (seed, parameter name, global element). Where `drawn` is given and
  // false, a parameter stays as it is: the caller fills it. publish_owned() must follow.
  void initialise(std::uint64_t seed, const DrawnParameters& drawn = {});
  // The owned part of a whole parameter.
  void assign(const FlatEntry& entry, const at::Tensor& whole);
  // Adds to the owned part of a parameter, by a whole one that is cut over no other axis. publish_owned() must follow.
  void add(const FlatEntry& entry, const at::Tensor& whole) const;

  // The parameter as unit `user` sees it; made on first use. nullptr when this buffer does not hold it.
  nn::Parameter* find(std::string_view name, int user);
  // Neighbours with one label as one parameter: [sum of first dims, rest]. nullptr when there is no such label.
  nn::Parameter* joined(std::string_view label, int user);

  // Full values. Where they are transient, their memory comes with attach and goes with release.
  bool transient_values() const { return policy_.shards_parameters(); }
  bool has_values() const { return !transient_values() || transient_.has_memory(); }
  void attach_values() { transient_.attach(); }
  void release_values() { transient_.release(); }
  // What an all-gather over fsdp fills, and this rank's part of it, in the compute dtype and up to date.
  at::Tensor gather_output() const { return transient_values() ? transient_.block() : values_; }
  at::Tensor gather_input() const;
  // The owned part of the values where it has memory for good and must follow the optimizer's copy. Undefined where
  // both share memory, and where values are made of the optimizer's copy whenever they are gathered.
  at::Tensor published() const;
  // After a change of master(): the owned part of the values follows.
  void publish_owned();

  // Before the first microbatch. `zero`: gradients must be zero before the first is added, for units whose gradients
  // autograd accumulates. Those of the step before stay until attach_gradients().
  void begin_step(int user, bool zero);
  // Gradients of one use are writable, and have memory until release_gradients().
  void attach_gradients(int user);
  void release_gradients();
  // Clears what nobody wrote since the last call, and gaps, and adds the uses together into gradient(). The next
  // addition starts anew.
  void complete_gradients();
  // Called there with the gradient of each use before the uses are added together.
  void set_use_listener(UseListener listener) { use_listener_ = std::move(listener); }
  // Names of parameters that got no gradient since begin_step().
  std::vector<std::string> unused() const;

  at::Tensor gradient() const;                                          // full: the sum after completion
  const at::Tensor& owned_gradient() const { return owned_gradient_; }  // what the optimizer reads

  // On the device for good: values and the optimizer's copy of them, and gradients.
  std::int64_t kept_value_bytes() const;
  std::int64_t kept_gradient_bytes() const;

  const MasterValues& master() const { return master_; }
  // Of a buffer that is owned whole; InternalError otherwise. A copy where the master is stored in halves.
  at::Tensor master_view(const FlatEntry& entry) const;
  at::Tensor gradient_view(const FlatEntry& entry) const;

 private:
  struct Use {
    std::vector<std::string_view> names;  // of the unit that owns the buffer, and of the parameters it covers
    nn::Parameter parameter;
    bool written = false;  // since begin_step()
  };
  struct UserGradients {
    at::Tensor full;
    TransientBuffer transient;  // what `full` is, when gradients are sharded
    bool starts_at_zero = false;
    bool clear_first = false;  // they start at zero, and hold those of the step before
    std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<Use>> uses;  // (first entry, count)
  };

  void make_values(const Precision& precision, const BufferMemory& memory);
  void make_gradients(const Precision& precision, const BufferMemory& memory);
  void clear_rest(UserGradients& gradients) const;
  std::size_t user_place(int user) const;
  nn::TensorCut cut_of(const FlatEntry& entry) const;
  nn::Parameter* use(std::size_t first, std::size_t count, const Shape& shape, int user);

  const GraphSpec& graph_;
  FlatBuffer layout_;
  std::vector<std::string_view> names_;  // of the unit that owns the buffer, then of each entry
  DataPolicy policy_;
  Range owned_;
  std::vector<Range> gaps_;
  MasterValues master_;  // owned range
  at::Tensor values_;    // full; master_ is a part of it when `shares_` is set, or its upper half
  TransientBuffer transient_;
  at::Tensor shard_;  // owned range on the device, in the compute dtype; where the master lies on the host, or is split
  bool shares_ = false;
  std::vector<UserGradients> users_;
  at::Tensor owned_gradient_;
  UseListener use_listener_;
};

}  // namespace orthant
