// How the members of a channel exchange chunks. Each member has a lane in its own arena: a few slots that it alone
// fills, how many steps it has posted, and how many steps of all others it has read. Step s of every lane lies in slot
// s % kSlots; a slot is filled again only when all others have read what it held.
#pragma once

#include <string>
#include <vector>

#include "orthant/shm/endpoint.h"

namespace orthant::shm {

inline constexpr uint64_t kSlots = 4;
inline constexpr size_t kSlotBytes = 256 * 1024;

// What a member says about one step. Read with Lanes::header(), once.
struct SlotHeader {
  uint64_t fingerprint;  // of the call; equal on all members
  uint64_t value;        // one number of the operation's own
};

struct LaneHeader {
  alignas(64) std::atomic<uint64_t> posted;
  alignas(64) std::atomic<uint64_t> consumed;
  alignas(64) SlotHeader slots[kSlots];
};

class Lanes {
 public:
  // Publishes this member's lane. Local.
  Lanes(Endpoint& endpoint, const std::string& channel, std::vector<int> ranks, int index);

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }
  int rank_of(int member) const { return ranks_[static_cast<size_t>(member)]; }
  Endpoint& endpoint() { return endpoint_; }

  // True once every member has published its lane. Never blocks. PeerFailure when a lane lies outside its arena.
  bool connected();

  bool may_post(uint64_t step) const;
  std::byte* own_slot(uint64_t step) const { return slot(index_, step); }
  void post(uint64_t step, const SlotHeader& header);

  bool all_posted(uint64_t step) const;
  // A copy: see Note [Numbers in shared memory] in arena.h.
  SlotHeader header(int member, uint64_t step) const {
    const auto& slot = lane(member).slots[step % kSlots];
    return {read_once(slot.fingerprint), read_once(slot.value)};
  }
  std::byte* slot(int member, uint64_t step) const;
  void consume(uint64_t step);

  // Members that keep this one from going on: not published, not posted, or (when posting) not read.
  std::vector<int> ranks_not_connected() const;
  std::vector<int> ranks_not_posted(uint64_t step) const;
  std::vector<int> ranks_not_consumed(uint64_t step) const;

 private:
  LaneHeader& lane(int member) const { return *lanes_[static_cast<size_t>(member)]; }
  void ring_others();

  Endpoint& endpoint_;
  uint64_t name_hash_;
  std::vector<int> ranks_;
  int index_;
  std::vector<LaneHeader*> lanes_;  // by member; null until found
  bool connected_ = false;
};

}  // namespace orthant::shm
