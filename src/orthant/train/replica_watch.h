// Whether ranks that must hold equal bits do: train.verify_replicas. Memory and processors change bits without an error
// now and then; what a replica then trains is wrong, and a checkpoint has it from whichever rank wrote that part.
//
// Note [Replicas]: a rank names what it holds: the optimizer's copy of a parameter, the copy that products use where it
// lies elsewhere and stays, and the summed gradient, each by the boxes of the global tensor and the range in them. Two
// ranks that name the same thing must hold the same bits: ranks of dp, and of cp where shards do not span it; of fsdp
// for what is not sharded; of tp for what tp does not cut; stages for a tied parameter. What one rank alone holds (the
// shards of an fsdp axis without dp) is compared with nothing. What a fault makes of a gradient before it is summed
// reaches all replicas alike, and is not seen.
//
// Note [A step done again]: hashes are compared when gradients are summed and before they are used, so that the state
// is still that of the step's start. Where gradients alone differ, the step is run again, with the same bits where
// nothing is broken: the fault was transient when replicas are equal then, and whose bits changed had it. Where they
// differ again it is persistent. Parameters that differ are no matter of this step: no run of it can tell or mend them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/comm/control_group.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/train/replica_difference.h"

namespace orthant {

// What replicas were found to hold.
struct ReplicaReport {
  bool equal = true;
  bool gradients_alone = false;  // differ
  std::vector<int> odd;          // ranks; see ReplicaDifference
  bool decided = false;          // `odd` is a minority
  std::string text;              // "unit layers.1: the summed gradient of ... of rank 1 (host a) is not that of ..."
};

class ReplicaWatch {
 public:
  // Every so many steps. Keeps a reference to the store.
  ReplicaWatch(ParameterStore& store, ControlGroup ranks, std::int64_t every)
      : store_(store), ranks_(std::move(ranks)), every_(every) {}

  bool due(std::int64_t step) const { return step % every_ == 0; }

  // What all ranks hold now; gradients count where they are summed and not yet used. Alike on every rank. Collective
  // over the world.
  ReplicaReport look(bool gradients);

  // The ranks whose gradients were others in the look before the newest. Collective over the world.
  std::vector<int> changed_between_looks() const;

 private:
  enum class Kind { parameter, copy, gradient };
  struct Item {
    Kind kind = Kind::parameter;
    std::size_t buffer = 0;
    std::size_t entry = 0;
    Range range;            // in the buffer
    std::uint64_t key = 0;  // of what it is, alike on all ranks that hold it
    std::uint64_t set = 0;  // of the ranks that hold it
  };

  void find_items();
  void add_item(Kind kind, std::size_t buffer, std::size_t entry, Range range);
  std::uint64_t hash(const Item& item) const;
  bool digests_agree() const;
  ReplicaReport report() const;
  std::string name(const Item& item) const;

  ParameterStore& store_;
  ControlGroup ranks_;
  std::int64_t every_;
  bool found_items_ = false;
  std::vector<Item> items_;            // that other ranks hold, too
  std::vector<std::uint64_t> hashes_;  // of items_, in the newest look; 0: not looked at
  std::vector<std::uint64_t> hashes_before_;
};

}  // namespace orthant
