// A collective as steps over lanes. What differs between operations is what a member puts into its slot at a step and
// what it takes from the others' slots; everything else is the same for all. See Note [Staged and placed].
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "orthant/shm/dtype.h"
#include "orthant/shm/lanes.h"

namespace orthant::shm {

// One collective as the caller describes it. Sizes in elements; a count per member where parts may differ.
struct CollectiveRequest {
  enum class Kind { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, barrier };
  Kind kind = Kind::barrier;
  Dtype dtype = Dtype::u8;
  Reduce reduce = Reduce::sum;
  const std::byte* input = nullptr;    // all_gather: own part; reduce_scatter, all_to_all: the whole
  std::byte* output = nullptr;         // all_reduce and broadcast work in place on it
  std::vector<int64_t> input_counts;   // reduce_scatter, all_to_all
  std::vector<int64_t> output_counts;  // all_gather, all_to_all
  int64_t count = 0;                   // all_reduce, broadcast
  int root = 0;
};

// A collective under way. `posted` and `consumed` count steps of this operation.
class Collective : public Operation {
 public:
  Collective(CollectiveRequest request, Lanes& lanes) : request_(std::move(request)), lanes_(lanes) {}

  // Writes this member's side of a step into its slot and returns the number to send along.
  virtual uint64_t fill(uint64_t step, std::byte* slot) = 0;

  // Takes what the others have posted; `at` is the step's number on the lanes. False when it wants to be called again.
  // PeerFailure when a member's numbers do not fit its memory.
  virtual bool drain(uint64_t step, uint64_t at) = 0;

  // How many steps may be posted before the oldest is drained.
  virtual uint64_t lookahead() const { return 2; }

  uint64_t fingerprint() const;
  const CollectiveRequest& request() const { return request_; }

  uint64_t num_steps = 1;   // as far as known; a first step may add more
  bool single_step = true;  // it is known from the start that there is only one
  uint64_t posted = 0;
  uint64_t consumed = 0;

 protected:
  size_t element() const { return size_of(request_.dtype); }
  int size() const { return lanes_.size(); }
  int index() const { return lanes_.index(); }

  CollectiveRequest request_;
  Lanes& lanes_;
};

std::shared_ptr<Collective> make_collective(CollectiveRequest request, Lanes& lanes);

// The collectives of one channel, one after the other.
class CollectiveLine : public Line {
 public:
  CollectiveLine(Endpoint& endpoint, const std::string& channel, std::vector<int> ranks, int index)
      : lanes_(endpoint, channel, std::move(ranks), index) {}

  // Queues the call and moves it on as far as it goes. The caller holds `mutex`.
  std::shared_ptr<Operation> start(CollectiveRequest request);

  bool advance() override;
  bool idle() const override { return queue_.empty(); }
  bool needs_nobody() const override;
  std::vector<int> awaited() const override;
  void fail(std::exception_ptr error) override;

 private:
  bool move_on();
  void check_headers(const Collective& operation, uint64_t at) const;

  Lanes lanes_;
  std::deque<std::shared_ptr<Collective>> queue_;
  uint64_t first_step_ = 0;  // of the first in the queue, on the lanes
  std::exception_ptr broken_;
};

}  // namespace orthant::shm
