#include "orthant/comm/checked.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/comm/fingerprint.h"

// Note [Checked calls]
// Each call is a task on a thread of its own: publish the fingerprint in the store, wait until the other members have
// published theirs for the same channel and sequence number, compare, run the call on the inner transport, finish. A
// task starts after the one before it in its line (the collectives of the channel, or the messages of one directed pair
// and tag), so order is kept, and nothing else waits for it: a program that is correct without checks is correct with
// them. On a device a task has a stream of its own, one for each line: it goes on behind what the caller had put on its
// stream when it made the call, and the caller's stream waits for it where the call is waited for, not before. Else a
// receive whose turn has come would hold up what this rank sends after it. A device keeps as many streams apart as
// CallWatch has queues, and c10 hands out as many before it hands out the first again: where calls wait on the device
// (NCCL), lines' streams are among these queues, and one more is refused.
//
// A thread that has waited for a third of a second says so on the board, with the ranks it misses. The task it waits
// for then looks for ranks that left (they will never make the call) and for ranks that can only wait for each other:
// every thread that has ever made a call there is blocked, and each misses a rank of which the same is true. A slow
// rank is neither, and the wait goes on until the timeout.

namespace orthant::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kSayAfter = milliseconds(100);
constexpr auto kLookEvery = milliseconds(100);

// What the task and the waiting thread share.
struct TaskState {
  std::mutex mutex;
  std::vector<int> missing;
  bool waited_for = false;
};

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Where a task works on a device, and between which events.
struct TaskStream {
  TaskStream(at::Device device, c10::Stream of_line) : stream(of_line), made(device.type()), over(device.type()) {
    made.record(current_stream(device));
  }

  c10::Stream stream;
  c10::Event made;  // what came before the call
  c10::Event over;
};

class CheckedPending : public Pending {
 public:
  CheckedPending(std::shared_future<void> done, std::shared_ptr<TaskState> state,
                 std::shared_ptr<const TaskStream> stream, std::shared_ptr<Board> board, std::string call,
                 std::string site)
      : done_(std::move(done)),
        state_(std::move(state)),
        stream_(std::move(stream)),
        board_(std::move(board)),
        call_(std::move(call)),
        site_(std::move(site)) {}

  bool done() override { return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  void wait() override {
    std::vector<int> said;
    while (done_.wait_for(kSayAfter) == std::future_status::timeout) {
      std::vector<int> missing;
      {
        std::lock_guard lock(state_->mutex);
        missing = state_->missing;
        state_->waited_for = true;
      }
      if (missing != said) board_->blocked({call_, site_, missing});
      said = missing;
    }
    if (!said.empty()) board_->unblocked();
    done_.get();
    if (stream_) stream_->over.block(current_stream(stream_->stream.device()));
  }

 private:
  std::shared_future<void> done_;
  std::shared_ptr<TaskState> state_;
  std::shared_ptr<const TaskStream> stream_;  // null on the host
  std::shared_ptr<Board> board_;
  std::string call_;
  std::string site_;
};

class CheckedTransport : public Transport {
 public:
  CheckedTransport(std::unique_ptr<Transport> inner, CheckedChannel channel, Store store, std::shared_ptr<Board> board)
      : inner_(std::move(inner)),
        channel_(std::move(channel)),
        store_(std::move(store)),
        board_(std::move(board)),
        timeout_seconds_(channel_.timeout_seconds) {}

  // Calls that still wait for a member are given up; those that run end by themselves.
  ~CheckedTransport() override {
    stopping_ = true;
    for (auto& thread : threads_) thread.join();
    for (const auto& [name, line] : lines_) {
      if (line.queue >= 0) channel_.watch->remove_queue(line.queue);
    }
  }

  std::unique_ptr<Pending> start(const Call& call) override {
    auto state = std::make_shared<TaskState>();
    board_->caller();
    auto& line = lines_[call.line(channel_.index)];
    const auto before = line.newest;
    const auto stream = task_stream(call, line);
    std::packaged_task<void()> task([this, call, state, before, stream] {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      if (before.valid()) before.get();
      check(call, *state);
      if (!stream) return inner_->start(call)->wait();
      const c10::StreamGuard on_stream(stream->stream);
      stream->made.block(stream->stream);
      inner_->start(call)->wait();
      stream->over.record(stream->stream);
    });
    line.newest = task.get_future().share();
    reap_finished();
    threads_.emplace_back(std::move(task));
    futures_.push_back(line.newest);
    return std::make_unique<CheckedPending>(line.newest, state, stream, board_,
                                            fmt::format("{} of {}", describe(call), channel_.name),
                                            short_location(call.site));
  }

  void connect(const std::vector<MessagePair>& pairs) override { inner_->connect(pairs); }

  void set_timeout(double timeout_seconds) override {
    timeout_seconds_ = timeout_seconds;
    inner_->set_timeout(timeout_seconds);
  }

 private:
  struct Line {
    std::shared_future<void> newest;
    std::optional<c10::Stream> stream = {};  // on a device
    int queue = -1;                          // of the watch, for the stream
  };

  // Null on the host. ConfigError for a stream more than the device keeps apart.
  std::shared_ptr<TaskStream> task_stream(const Call& call, Line& line) {
    const auto& any = call.outputs.empty() ? call.inputs : call.outputs;
    if (any.empty() || any.front().device().is_cpu()) return nullptr;
    const auto device = any.front().device();
    if (!line.stream) {
      if (channel_.watch && line.queue < 0) {
        const ChannelMembers members{.name = channel_.name, .ranks = channel_.ranks, .index = channel_.index};
        line.queue = channel_.watch->add_queue(members, std::nullopt, [] {});
      }
      line.stream =
          c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    }
    return std::make_shared<TaskStream>(device, *line.stream);
  }

  void reap_finished() {
    for (size_t i = 0; i < threads_.size();) {
      if (futures_[i].wait_for(milliseconds(0)) != std::future_status::ready) {
        ++i;
        continue;
      }
      threads_[i].join();
      threads_.erase(threads_.begin() + static_cast<std::ptrdiff_t>(i));
      futures_.erase(futures_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Key under which member `index` publishes its side of the call.
  std::string key_of(const Call& call, int index, uint64_t sequence) const {
    return fmt::format("check/{}/{}/{}", call.line(channel_.index), sequence, index);
  }

  std::vector<int> members_of(const Call& call) const {
    if (call.is_point_to_point()) return {call.peer};
    std::vector<int> members;
    for (int i = 0; i < static_cast<int>(channel_.ranks.size()); ++i) {
      if (i != channel_.index) members.push_back(i);
    }
    return members;
  }

  void check(const Call& call, TaskState& state) {
    const auto mine = Fingerprint::of(call, static_cast<int>(channel_.ranks.size()));
    auto absent = members_of(call);
    try {
      store_.set(key_of(call, channel_.index, call.sequence), mine.to_text());
      await(call, mine, absent, state);
      clean_up(call);
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {
      throw CommError(fmt::format("{} of {} at {}: the store is gone, so its server (rank 0 or the launcher) ended",
                                  describe(call), channel_.name, short_location(call.site)),
                      {.remedy = "see why rank 0 ended", .rank = own_rank()}, call.site);
    }
  }

  // Blocks until every absent member's fingerprint has been seen to agree.
  void await(const Call& call, const Fingerprint& mine, std::vector<int>& absent, TaskState& state) {
    const auto began = Clock::now();
    auto next_look = began + kSayAfter + kLookEvery;
    auto pause = std::chrono::microseconds(50);
    std::string suspicion;
    while (true) {
      std::erase_if(absent, [&](int member) { return agrees(call, mine, member); });
      {
        std::lock_guard lock(state.mutex);
        state.missing.clear();
        for (const int member : absent) state.missing.push_back(channel_.ranks[static_cast<size_t>(member)]);
      }
      if (absent.empty()) return;
      if (stopping_) {
        throw CommError(fmt::format("{} of {} was given up: the group was closed", describe(call), channel_.name),
                        {.remedy = "wait for every Work before closing", .rank = own_rank()});
      }
      const auto now = Clock::now();
      if (now > next_look) {
        look_for_trouble(call, absent, state, suspicion);
        next_look = now + kLookEvery;
      }
      if (std::chrono::duration<double>(now - began).count() > timeout_seconds_) refuse_late(call, absent.front());
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(5000));
    }
  }

  bool agrees(const Call& call, const Fingerprint& mine, int member) {
    const auto text = store_.get_now(key_of(call, member, call.sequence));
    if (text.empty()) return false;
    const auto theirs = Fingerprint::from_text(text);
    const auto problem = disagreement(mine, channel_.index, theirs, member);
    if (!problem) return true;
    throw CommError(
        fmt::format("calls on {} do not match: rank {} made {} at {}, rank {} made {} at {}: {}", channel_.name,
                    own_rank(), mine.call, mine.site, rank_of(member), theirs.call, theirs.site, *problem),
        {.remedy = "let all members make the same calls in the same order", .rank = own_rank()}, call.site);
  }

  void look_for_trouble(const Call& call, const std::vector<int>& absent, TaskState& state, std::string& suspicion) {
    for (const int member : absent) {
      // A rank publishes before it leaves, so what it said last may have arrived since the first look.
      if (!board_->has_left(rank_of(member)) || store_.has(key_of(call, member, call.sequence))) continue;
      throw CommError(
          fmt::format("rank {} left without making the call that rank {} waits in: {} of {} at {}", rank_of(member),
                      own_rank(), describe(call), channel_.name, short_location(call.site)),
          {.remedy = "let all members make the same calls", .rank = own_rank()}, call.site);
    }
    {
      std::lock_guard lock(state.mutex);
      if (!state.waited_for) return;
    }
    const auto cycle = board_->find_deadlock();
    if (cycle && *cycle == suspicion) {
      throw CommError(fmt::format("deadlock: ranks wait for each other{}", *cycle),
                      {.remedy = "let all members make the same calls in the same order", .rank = own_rank()},
                      call.site);
    }
    suspicion = cycle.value_or("");
  }

  [[noreturn]] void refuse_late(const Call& call, int member) {
    throw CommError(fmt::format("rank {} did not make the call that rank {} waits in within {:.6g} s: {} of {} at {}",
                                rank_of(member), own_rank(), timeout_seconds_.load(), describe(call), channel_.name,
                                short_location(call.site)),
                    {.remedy = "see what that rank is doing, or raise --timeout", .rank = own_rank()}, call.site);
  }

  // Everybody has published this call, so everybody has read the one before.
  void clean_up(const Call& call) {
    if (call.is_point_to_point()) {
      store_.erase(key_of(call, call.peer, call.sequence));
    } else if (call.sequence > 0) {
      store_.erase(key_of(call, channel_.index, call.sequence - 1));
    }
  }

  int own_rank() const { return rank_of(channel_.index); }
  int rank_of(int member) const { return channel_.ranks[static_cast<size_t>(member)]; }

  std::unique_ptr<Transport> inner_;
  CheckedChannel channel_;
  Store store_;
  std::shared_ptr<Board> board_;
  std::atomic<double> timeout_seconds_;
  std::atomic<bool> stopping_ = false;
  std::map<std::string, Line> lines_;
  std::vector<std::thread> threads_;
  std::vector<std::shared_future<void>> futures_;
};

}  // namespace

std::unique_ptr<Transport> make_checked_transport(std::unique_ptr<Transport> inner, CheckedChannel channel, Store store,
                                                  std::shared_ptr<Board> board) {
  return std::make_unique<CheckedTransport>(std::move(inner), std::move(channel), std::move(store), std::move(board));
}

}  // namespace orthant::comm
