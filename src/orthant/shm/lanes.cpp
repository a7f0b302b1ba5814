#include "orthant/shm/lanes.h"

#include "orthant/base/stable_hash.h"

namespace orthant::shm {

Lanes::Lanes(Endpoint& endpoint, const std::string& channel, std::vector<int> ranks, int index)
    : endpoint_(endpoint),
      name_hash_(stable_hash(channel)),
      ranks_(std::move(ranks)),
      index_(index),
      lanes_(ranks_.size(), nullptr) {
  lanes_[static_cast<size_t>(index_)] = endpoint_.arena().publish<LaneHeader>(channel, kSlots * kSlotBytes);
}

bool Lanes::connected() {
  if (connected_) return true;
  bool all = true;
  for (int member = 0; member < size(); ++member) {
    auto& found = lanes_[static_cast<size_t>(member)];
    if (found == nullptr) {
      found = reinterpret_cast<LaneHeader*>(
          endpoint_.peer(rank_of(member)).find(name_hash_, sizeof(LaneHeader) + kSlots * kSlotBytes));
    }
    all = all && found != nullptr;
  }
  connected_ = all;
  return all;
}

std::byte* Lanes::slot(int member, uint64_t step) const {
  return reinterpret_cast<std::byte*>(&lane(member)) + sizeof(LaneHeader) + step % kSlots * kSlotBytes;
}

bool Lanes::may_post(uint64_t step) const {
  for (int member = 0; member < size(); ++member) {
    if (member != index_ && lane(member).consumed.load(std::memory_order_seq_cst) + kSlots <= step) return false;
  }
  return true;
}

void Lanes::post(uint64_t step, const SlotHeader& header) {
  lane(index_).slots[step % kSlots] = header;
  lane(index_).posted.store(step + 1, std::memory_order_seq_cst);
  ring_others();
}

bool Lanes::all_posted(uint64_t step) const {
  for (int member = 0; member < size(); ++member) {
    if (member != index_ && lane(member).posted.load(std::memory_order_acquire) <= step) return false;
  }
  return true;
}

void Lanes::consume(uint64_t step) {
  lane(index_).consumed.store(step + 1, std::memory_order_seq_cst);
  // Others wait for this only when the slots are full.
  for (int member = 0; member < size(); ++member) {
    if (member != index_ && lane(member).posted.load(std::memory_order_seq_cst) >= step + kSlots)
      endpoint_.ring(rank_of(member));
  }
}

void Lanes::ring_others() {
  for (int member = 0; member < size(); ++member) {
    if (member != index_) endpoint_.ring(rank_of(member));
  }
}

std::vector<int> Lanes::ranks_not_connected() const {
  std::vector<int> ranks;
  for (int member = 0; member < size(); ++member) {
    if (lanes_[static_cast<size_t>(member)] == nullptr) ranks.push_back(rank_of(member));
  }
  return ranks;
}

std::vector<int> Lanes::ranks_not_posted(uint64_t step) const {
  std::vector<int> ranks;
  for (int member = 0; member < size(); ++member) {
    if (member != index_ && lane(member).posted.load(std::memory_order_acquire) <= step)
      ranks.push_back(rank_of(member));
  }
  return ranks;
}

std::vector<int> Lanes::ranks_not_consumed(uint64_t step) const {
  std::vector<int> ranks;
  for (int member = 0; member < size(); ++member) {
    if (member != index_ && lane(member).consumed.load(std::memory_order_seq_cst) + kSlots <= step) {
      ranks.push_back(rank_of(member));
    }
  }
  return ranks;
}

}  // namespace orthant::shm
