// What each collective puts into its slots and takes out of the others'.
//
// Note [Staged and placed]
// Staged: the tensor travels in chunks through the members' slots, one copy in and one pass out; the pass out is the
// reduction itself where there is one. Placed: all members' tensors lie in their arenas, so each member reads the
// others' memory directly; a first step tells where the tensors are, the work follows, a last step says that it is done
// and the memory may be used again. A call whose side fits one slot is always staged, in a single step. For a larger
// one the first step decides: placed when every member's tensor is, staged otherwise. Sums are made in rank order by
// whoever makes them, so all ways give the same bits on all members.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "orthant/shm/collective_parts.h"
#include "orthant/shm/reduce.h"

namespace orthant::shm {
namespace {

constexpr size_t kPiece = 512 * 1024;    // of placed memory handled at a time, so that other lines get their turn
constexpr int kDirectReduceMembers = 3;  // up to here every member reduces everything itself

using Kind = CollectiveRequest::Kind;

// A collective that is one step when small, and otherwise decides in its first step how to go on.
class TwoWay : public Collective {
 public:
  using Collective::Collective;

  // Placed: "done" may be said only when the work is.
  uint64_t lookahead() const override { return way_ == Way::staged ? 2 : 1; }

  uint64_t fill(uint64_t step, std::byte* slot) override {
    if (way_ == Way::eager) return fill_chunk(0, slot);
    if (step == 0) return announce(slot);
    if (way_ == Way::staged) return fill_chunk(step - 1, slot);
    return 0;  // placed: "done"
  }

  bool drain(uint64_t step, uint64_t at) override {
    if (way_ == Way::eager) {
      drain_chunk(0, at);
      return true;
    }
    if (step == 0) return decide_and_work(at);
    if (way_ == Way::staged) drain_chunk(step - 1, at);
    return true;
  }

 protected:
  // Bytes of this tensor that others may read or write when it is placed.
  struct Shared {
    const std::byte* data;
    size_t bytes;
  };

  void choose_way(bool small, Shared shared, uint64_t num_chunks) {
    way_ = small ? Way::eager : Way::undecided;
    single_step = small;
    shared_ = shared;
    num_chunks_ = num_chunks;
  }

  virtual uint64_t fill_chunk(uint64_t chunk, std::byte* slot) = 0;
  virtual void drain_chunk(uint64_t chunk, uint64_t at) = 0;
  // Handles bytes [begin, end) of placed_bytes() with all members' tensors at bases_.
  virtual void work_placed(size_t begin, size_t end) = 0;
  virtual size_t placed_bytes() const = 0;
  // Bytes of the member's tensor that work_placed() reads or writes there; 0: it need not be placed.
  virtual size_t placed_bytes_of(int member) const = 0;

  std::vector<std::byte*> bases_;  // the tensors of all members that must be placed, once they are known to be

 private:
  enum class Way { eager, undecided, placed, staged };

  uint64_t announce(std::byte*) {
    auto& arena = lanes_.endpoint().arena();
    announced_ = arena.mapping().contains(shared_.data, shared_.bytes) ? arena.offset_of(shared_.data) : kNotPlaced;
    return announced_;
  }

  bool decide_and_work(uint64_t at) {
    if (way_ == Way::undecided) decide(at);
    if (way_ == Way::staged) return true;
    const size_t end = std::min(worked_ + kPiece, placed_bytes());
    work_placed(worked_, end);
    worked_ = end;
    return worked_ == placed_bytes();
  }

  void decide(uint64_t at) {
    bool placed = true;
    bases_.assign(static_cast<size_t>(size()), nullptr);
    for (int member = 0; member < size(); ++member) {
      const size_t bytes = placed_bytes_of(member);
      if (bytes == 0) continue;
      const uint64_t offset = member == index() ? announced_ : lanes_.header(member, at).value;
      if (offset == kNotPlaced) {
        placed = false;
      } else {
        bases_[static_cast<size_t>(member)] = lanes_.endpoint().peer(lanes_.rank_of(member)).at(offset, bytes);
      }
    }
    way_ = placed ? Way::placed : Way::staged;
    num_steps = placed ? 2 : 1 + num_chunks_;
  }

  Way way_ = Way::eager;
  Shared shared_{nullptr, 0};
  uint64_t num_chunks_ = 1;
  size_t worked_ = 0;
  uint64_t announced_ = kNotPlaced;
};

class AllReduce : public TwoWay {
 public:
  AllReduce(CollectiveRequest request, Lanes& lanes) : TwoWay(std::move(request), lanes) {
    bytes_ = static_cast<size_t>(request_.count) * element();
    chunks_ = steps_for(bytes_, kSlotBytes);
    two_phases_ = bytes_ > kSlotBytes && size() > kDirectReduceMembers;
    choose_way(bytes_ <= kSlotBytes, {request_.output, bytes_}, two_phases_ ? 2 * chunks_ + 1 : chunks_);
  }

 protected:
  // In two phases, members reduce one part of a chunk each and then hand the results around. The steps are sums of
  // chunk 0, sums 1, results 0, sums 2, results 1, ...: while results of one chunk travel, the next one's sums are
  // under way.
  struct Phase {
    bool results;
    uint64_t chunk;
  };
  static Phase phase_of(uint64_t step) {
    if (step == 0) return {false, 0};
    return step % 2 == 1 ? Phase{false, (step + 1) / 2} : Phase{true, step / 2 - 1};
  }

  uint64_t fill_chunk(uint64_t step, std::byte* slot) override {
    const auto phase = two_phases_ ? phase_of(step) : Phase{false, step};
    const auto [begin, end] = range(phase.chunk);
    if (!phase.results) {
      copy_bytes(slot, request_.output + begin, end - begin);
    } else {
      const auto [from, to] = part(begin, end, index());
      copy_bytes(slot, request_.output + from, to - from);
    }
    return 0;
  }

  void drain_chunk(uint64_t step, uint64_t at) override {
    const auto phase = two_phases_ ? phase_of(step) : Phase{false, step};
    const auto [begin, end] = range(phase.chunk);
    if (!phase.results) {
      const auto [from, to] = two_phases_ ? part(begin, end, index()) : std::pair{begin, end};
      std::vector<const void*> terms;
      for (int member = 0; member < size(); ++member) {
        terms.push_back(member == index() ? request_.output + from : lanes_.slot(member, at) + (from - begin));
      }
      reduce(request_.dtype, request_.reduce, request_.output + from, terms.data(), size(), (to - from) / element());
      return;
    }
    for (int member = 0; member < size(); ++member) {
      if (member == index()) continue;
      const auto [from, to] = part(begin, end, member);
      copy_bytes(request_.output + from, lanes_.slot(member, at), to - from);
    }
  }

  size_t placed_bytes_of(int) const override { return bytes_; }

  // Each member reduces its part of the tensor into everybody's.
  size_t placed_bytes() const override {
    const auto [begin, end] = part(0, bytes_, index());
    return end - begin;
  }

  void work_placed(size_t begin, size_t end) override {
    const size_t offset = part(0, bytes_, index()).first + begin;
    std::vector<void*> tensors;
    for (auto* base : bases_) tensors.push_back(base + offset);
    reduce_to_many(request_.dtype, request_.reduce, tensors.data(), size(), tensors.data(), size(),
                   (end - begin) / element());
  }

 private:
  std::pair<size_t, size_t> range(uint64_t chunk) const {
    return {std::min(bytes_, chunk * kSlotBytes), std::min(bytes_, (chunk + 1) * kSlotBytes)};
  }

  // Member's share of [begin, end), cut between elements and, where there are many, between cache lines.
  std::pair<size_t, size_t> part(size_t begin, size_t end, int member) const {
    const size_t unit = std::max<size_t>(kAlignment, element());
    const auto cut = [&](int i) {
      const size_t whole = (end - begin) / unit * static_cast<size_t>(i) / static_cast<size_t>(size()) * unit;
      return i == size() ? end : begin + whole;
    };
    return {cut(member), cut(member + 1)};
  }

  size_t bytes_ = 0;
  uint64_t chunks_ = 1;
  bool two_phases_ = false;
};

class AllGather : public TwoWay {
 public:
  AllGather(CollectiveRequest request, Lanes& lanes)
      : TwoWay(std::move(request), lanes), offsets_(offsets_of(request_.output_counts, element())) {
    const size_t largest = largest_part(offsets_);
    choose_way(largest <= kSlotBytes, {request_.input, bytes_of(index())}, steps_for(largest, kSlotBytes));
  }

 protected:
  uint64_t fill_chunk(uint64_t chunk, std::byte* slot) override {
    const auto [begin, end] = range(chunk, index());
    copy_bytes(slot, request_.input + begin, end - begin);
    copy_bytes(request_.output + offset(index()) + begin, request_.input + begin, end - begin);
    return 0;
  }

  void drain_chunk(uint64_t chunk, uint64_t at) override {
    for (int member = 0; member < size(); ++member) {
      if (member == index()) continue;
      const auto [begin, end] = range(chunk, member);
      copy_bytes(request_.output + offset(member) + begin, lanes_.slot(member, at), end - begin);
    }
  }

  size_t placed_bytes_of(int member) const override { return bytes_of(member); }
  size_t placed_bytes() const override { return offsets_.back(); }

  void work_placed(size_t begin, size_t end) override {
    for (int member = 0; member < size(); ++member) {
      const size_t from = std::max(begin, offset(member));
      const size_t to = std::min(end, offset(member + 1));
      if (from >= to) continue;
      const auto* source = member == index() ? request_.input : bases_[static_cast<size_t>(member)];
      copy_bytes(request_.output + from, source + (from - offset(member)), to - from,
                 placed_bytes() >= kStreamingBytes);
    }
  }

 private:
  size_t offset(int member) const { return offsets_[static_cast<size_t>(member)]; }
  size_t bytes_of(int member) const { return offset(member + 1) - offset(member); }
  std::pair<size_t, size_t> range(uint64_t chunk, int member) const {
    return {std::min(bytes_of(member), chunk * kSlotBytes), std::min(bytes_of(member), (chunk + 1) * kSlotBytes)};
  }

  std::vector<size_t> offsets_;
};

class ReduceScatter : public TwoWay {
 public:
  ReduceScatter(CollectiveRequest request, Lanes& lanes)
      : TwoWay(std::move(request), lanes), offsets_(offsets_of(request_.input_counts, element())) {
    // A slot holds a piece for every other member, each at a place of its own.
    place_bytes_ = kSlotBytes / static_cast<size_t>(size()) / kAlignment * kAlignment;
    const size_t largest = largest_part(offsets_);
    choose_way(largest <= place_bytes_, {request_.input, offsets_.back()}, steps_for(largest, place_bytes_));
  }

 protected:
  uint64_t fill_chunk(uint64_t chunk, std::byte* slot) override {
    for (int member = 0; member < size(); ++member) {
      if (member == index()) continue;
      const auto [begin, end] = range(chunk, member);
      copy_bytes(slot + place(member), request_.input + offset(member) + begin, end - begin);
    }
    return 0;
  }

  void drain_chunk(uint64_t chunk, uint64_t at) override {
    const auto [begin, end] = range(chunk, index());
    std::vector<const void*> terms;
    for (int member = 0; member < size(); ++member) {
      terms.push_back(member == index() ? request_.input + offset(index()) + begin
                                        : lanes_.slot(member, at) + place(index()));
    }
    reduce_into_output(terms, begin, end);
  }

  size_t placed_bytes_of(int) const override { return offsets_.back(); }
  size_t placed_bytes() const override { return bytes_of(index()); }

  void work_placed(size_t begin, size_t end) override {
    std::vector<const void*> terms;
    for (auto* base : bases_) terms.push_back(base + offset(index()) + begin);
    reduce_into_output(terms, begin, end);
  }

 private:
  void reduce_into_output(const std::vector<const void*>& terms, size_t begin, size_t end) {
    if (begin < end) {
      reduce(request_.dtype, request_.reduce, request_.output + begin, terms.data(), size(), (end - begin) / element());
    }
  }

  size_t place(int member) const { return place_bytes_ * static_cast<size_t>(member); }
  size_t offset(int member) const { return offsets_[static_cast<size_t>(member)]; }
  size_t bytes_of(int member) const { return offset(member + 1) - offset(member); }
  std::pair<size_t, size_t> range(uint64_t chunk, int member) const {
    return {std::min(bytes_of(member), chunk * place_bytes_), std::min(bytes_of(member), (chunk + 1) * place_bytes_)};
  }

  std::vector<size_t> offsets_;
  size_t place_bytes_ = 0;
};

class Broadcast : public TwoWay {
 public:
  Broadcast(CollectiveRequest request, Lanes& lanes) : TwoWay(std::move(request), lanes) {
    bytes_ = static_cast<size_t>(request_.count) * element();
    choose_way(bytes_ <= kSlotBytes, {request_.output, bytes_}, steps_for(bytes_, kSlotBytes));
  }

 protected:
  uint64_t fill_chunk(uint64_t chunk, std::byte* slot) override {
    if (is_root()) copy_bytes(slot, request_.output + begin(chunk), begin(chunk + 1) - begin(chunk));
    return 0;
  }

  void drain_chunk(uint64_t chunk, uint64_t at) override {
    if (!is_root())
      copy_bytes(request_.output + begin(chunk), lanes_.slot(request_.root, at), begin(chunk + 1) - begin(chunk));
  }

  size_t placed_bytes_of(int member) const override { return member == request_.root ? bytes_ : 0; }
  size_t placed_bytes() const override { return is_root() ? 0 : bytes_; }
  void work_placed(size_t from, size_t to) override {
    if (from < to)
      copy_bytes(request_.output + from, bases_[static_cast<size_t>(request_.root)] + from, to - from,
                 bytes_ >= kStreamingBytes);
  }

 private:
  bool is_root() const { return index() == request_.root; }
  size_t begin(uint64_t chunk) const { return std::min(bytes_, chunk * kSlotBytes); }

  size_t bytes_ = 0;
};

class Barrier : public Collective {
 public:
  using Collective::Collective;
  uint64_t fill(uint64_t, std::byte*) override { return 0; }
  bool drain(uint64_t, uint64_t) override { return true; }
};

}  // namespace

std::shared_ptr<Collective> make_collective(CollectiveRequest request, Lanes& lanes) {
  switch (request.kind) {
    case Kind::all_reduce:
      return std::make_shared<AllReduce>(std::move(request), lanes);
    case Kind::all_gather:
      return std::make_shared<AllGather>(std::move(request), lanes);
    case Kind::reduce_scatter:
      return std::make_shared<ReduceScatter>(std::move(request), lanes);
    case Kind::all_to_all:
      return make_all_to_all(std::move(request), lanes);
    case Kind::broadcast:
      return std::make_shared<Broadcast>(std::move(request), lanes);
    case Kind::barrier:
      return std::make_shared<Barrier>(std::move(request), lanes);
  }
  return nullptr;
}

}  // namespace orthant::shm
