// The exchange of a part between every two members. See Note [Staged and placed] in collective_kinds.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "orthant/shm/collective_parts.h"

namespace orthant::shm {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // more than any host has

// Only the two members of a pair know how much goes from one to the other, so the first step tells everybody the
// largest part and where each member's input lies, if it is placed. It carries the beginning of every part too: a small
// exchange needs no further step. What remains is read directly from placed inputs, or follows in further steps.
class AllToAll : public Collective {
 public:
  AllToAll(CollectiveRequest request, Lanes& lanes)
      : Collective(std::move(request), lanes),
        sent_(offsets_of(request_.input_counts, element())),
        received_(offsets_of(request_.output_counts, element())) {
    single_step = false;
    table_bytes_ = (num_members() + 1) * sizeof(uint64_t) / kAlignment * kAlignment + kAlignment;
    place_bytes_ = (kSlotBytes - table_bytes_) / num_members() / kAlignment * kAlignment;
    copy_bytes(request_.output + received_[own()], request_.input + sent_[own()], sent_[own() + 1] - sent_[own()]);
  }

  uint64_t lookahead() const override { return consumed == 0 || placed_ ? 1 : 2; }

  uint64_t fill(uint64_t step, std::byte* slot) override {
    if (step == 0) write_table(slot);
    if (placed_) return 0;  // "done"
    for (size_t member = 0; member < num_members(); ++member) {
      if (member == own()) continue;
      const auto [begin, end] = range(sent_, step, member);
      copy_bytes(slot + place(member), request_.input + begin, end - begin);
    }
    return largest_part(sent_);
  }

  bool drain(uint64_t step, uint64_t at) override {
    if (placed_) return step != 0 || read_placed();
    size_t largest = largest_part(sent_);
    bool placed = sources_[own()].offset != kNotPlaced;
    for (size_t member = 0; member < num_members(); ++member) {
      if (member == own()) continue;
      largest = std::max<size_t>(largest, largest_of(member, at));
      if (step == 0) {
        const auto* numbers = table(member, at);
        sources_[member] = {read_once(numbers[0]), read_once(numbers[1 + own()])};
        if (sources_[member].offset == kNotPlaced) placed = false;
      }
      const auto [begin, end] = range(received_, step, member);
      copy_bytes(request_.output + begin, lanes_.slot(static_cast<int>(member), at) + place(own()), end - begin);
    }
    if (step != 0) return true;
    num_steps = steps_for(largest, place_bytes_);
    if (!placed || num_steps == 1) return true;
    placed_ = true;
    num_steps = 2;
    return read_placed();
  }

 private:
  // Where the input lies in this rank's arena, then where each member's part begins in the input.
  void write_table(std::byte* slot) {
    auto& arena = lanes_.endpoint().arena();
    auto* numbers = reinterpret_cast<uint64_t*>(slot);
    const bool placed = arena.mapping().contains(request_.input, sent_.back());
    sources_[own()].offset = numbers[0] = placed ? arena.offset_of(request_.input) : kNotPlaced;
    std::copy(sent_.begin(), sent_.end() - 1, numbers + 1);
  }

  const uint64_t* table(size_t member, uint64_t at) const {
    return reinterpret_cast<const uint64_t*>(lanes_.slot(static_cast<int>(member), at));
  }

  // The rest of one member's part at a time, beginning behind this rank so that not all read the same memory.
  bool read_placed() {
    if (num_read_ == num_members()) return true;
    const size_t member = (own() + num_read_++) % num_members();
    const auto [begin, end] = range(received_, 0, member);
    const size_t part_end = received_[member + 1];
    if (member != own() && end < part_end) {
      const auto [offset, part] = sources_[member];
      const auto& arena = lanes_.endpoint().peer(lanes_.rank_of(static_cast<int>(member)));
      // Bounded before they are added, so that the sum cannot wrap and come out small.
      const auto place = std::min(offset, kMostBytes) + std::min(part, kMostBytes);
      const auto* source = arena.at(place, part_end - begin);
      copy_bytes(request_.output + end, source + (end - begin), part_end - end, received_.back() >= kStreamingBytes);
    }
    return num_read_ == num_members();
  }

  size_t num_members() const { return static_cast<size_t>(size()); }
  size_t own() const { return static_cast<size_t>(index()); }
  size_t place(size_t member) const { return table_bytes_ + place_bytes_ * member; }
  std::pair<size_t, size_t> range(const std::vector<size_t>& offsets, uint64_t step, size_t member) const {
    const size_t bytes = offsets[member + 1] - offsets[member];
    return {offsets[member] + std::min(bytes, step * place_bytes_),
            offsets[member] + std::min(bytes, (step + 1) * place_bytes_)};
  }

  // Of the largest part that a member sends; more than any tensor has would make steps without end.
  size_t largest_of(size_t member, uint64_t at) const {
    const auto bytes = lanes_.header(static_cast<int>(member), at).value;
    const int rank = lanes_.rank_of(static_cast<int>(member));
    if (bytes > kMostBytes) throw PeerFailure(rank, fmt::format("rank {} announced {} bytes", rank, bytes));
    return bytes;
  }

  // Where a member's input lies in its arena, and in it the part for this member; as the first step told.
  struct Source {
    uint64_t offset = kNotPlaced;
    uint64_t part = 0;
  };

  std::vector<size_t> sent_;
  std::vector<size_t> received_;
  std::vector<Source> sources_ = std::vector<Source>(num_members());
  size_t table_bytes_ = 0;
  size_t place_bytes_ = 0;
  bool placed_ = false;
  size_t num_read_ = 0;
};

}  // namespace

std::shared_ptr<Collective> make_all_to_all(CollectiveRequest request, Lanes& lanes) {
  return std::make_shared<AllToAll>(std::move(request), lanes);
}

}  // namespace orthant::shm
