// What the handles of one channel share: members, transport, counters, and how a failure is told. Internal to this
// layer.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "orthant/comm/call.h"
#include "orthant/comm/call_failure.h"
#include "orthant/comm/cut_calls.h"
#include "orthant/comm/store.h"
#include "orthant/comm/transport.h"
#include "orthant/trace/recorder.h"

namespace orthant::comm {

// What a group was called for, and how often in each line.
struct CallCounts {
  Counters counters;
  std::map<std::string, uint64_t> sequences;  // by line
};

class GroupState {
 public:
  using Members = ChannelMembers;

  // `store` is below the channel's name and used only to find out who is missing after a failure; none for fake groups.
  // `noticed`: of the communicator.
  GroupState(Members members, std::unique_ptr<Transport> transport, std::optional<Store> store, double timeout_seconds,
             std::shared_ptr<const NoticedFailure> noticed);

  const Members& members() const { return members_; }
  const Counters& counters() const { return counts_.counters; }
  const CallCounts& counts() const { return counts_; }
  // The calls between the two were made once more, as a graph.
  void count_again(const CallCounts& before, const CallCounts& after);
  void count_as(const CallCounts& counts) { counts_ = counts; }
  double timeout_seconds() const { return timeout_seconds_; }
  int own_rank() const { return members_.own_rank(); }

  // While it is there, calls are not started: the step that makes them is recorded in pieces. See Note [Cut at
  // exchanges]. Local.
  void cut_calls(std::shared_ptr<const Cuts> cuts) { cuts_ = std::move(cuts); }
  const std::shared_ptr<const Cuts>& cuts() const { return cuts_; }

  // Numbers, validates, counts and starts the call. Throws what an earlier dropped Work is owed, and after close().
  // Local.
  std::unique_ptr<Pending> start(Call& call);

  // Rethrows a backend's failure as a CommError that says everything this rank knows. May wait a second to learn which
  // members reached the same call.
  [[noreturn]] void fail(const Call& call, const std::exception& error, double waited_seconds);

  // Makes the transport ready for messages between these members; see Group::connect().
  void connect(const std::vector<MessagePair>& pairs);

  // Throws what was noticed beside the calls. Local.
  void throw_if_failed() const { noticed_->throw_if_set(); }

  // How long calls wait for peers from now on. Local.
  void set_timeout(double timeout_seconds);

  // Where starts of calls and waits for them are recorded from now on; groups of one rank record nothing. Local.
  void record_into(std::shared_ptr<trace::Recorder> recorder, const std::string& group_text);
  // Null: nobody records.
  trace::Recorder* recorder() const { return recorder_.get(); }
  trace::Event event_of(const Call& call, trace::EventKind kind) const;

  // Ends the channel, whoever still holds a handle: peers inside a call are told, calls from now on are refused. Local.
  void close();

  // A Work was destroyed before wait(): remembers where, and keeps the call alive so that peers are not cut off.
  void dropped(const Call& call, std::unique_ptr<Pending> pending);
  void throw_if_dropped();

  // A call that is recorded has a Work, too. Local.
  void opened() { ++num_open_; }
  // A Work of this group came to its end, waited for or not. Local.
  void settled() { --num_open_; }
  // Calls whose Work nobody has waited for yet.
  int num_open() const { return num_open_; }

 private:
  Members members_;
  std::optional<Store> store_;
  double timeout_seconds_;
  std::shared_ptr<const NoticedFailure> noticed_;
  std::shared_ptr<const Cuts> cuts_;
  std::shared_ptr<trace::Recorder> recorder_;
  std::uint32_t recorded_group_ = 0;
  std::array<std::uint32_t, kNumOps> recorded_ops_ = {};
  CallCounts counts_;
  std::atomic<int> num_open_ = 0;
  std::mutex dropped_mutex_;
  std::string dropped_call_;
  std::vector<std::unique_ptr<Pending>> kept_;
  std::unique_ptr<Transport> transport_;  // last: its threads end before anything they use
};

}  // namespace orthant::comm
