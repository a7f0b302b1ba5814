// A simulated NCCL as the oracle of check_queues(): hosts that put calls into the queues of their communicators,
// streams that run them in order, messages that match in the order in which they start. Who moves next is drawn.
#pragma once

#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "orthant/base/index.h"
#include "orthant/schedule/message_queues.h"
#include "schedule/random_tables.h"

namespace orthant::test {

enum class NcclEnd { done, hangs, wrong_message };

class SimulatedNccl {
 public:
  SimulatedNccl(const QueuePrograms& programs, std::mt19937& random) : programs_(programs), random_(random) {
    for (const auto& program : programs.ranks) {
      Rank& rank = ranks_.emplace_back();
      rank.parts_left.reserve(program.calls.size());
      for (const auto& call : program.calls) rank.parts_left.push_back(static_cast<int>(call.parts.size()));
    }
  }

  NcclEnd run() {
    for (int idle = 0; idle < kPatience;) {
      const int rank = draw(random_, static_cast<int>(ranks_.size()));
      const int times = 1 + draw(random_, 8);
      bool moved = false;
      for (int i = 0; i < times; ++i) moved = move(rank) || moved;
      if (wrong_) return NcclEnd::wrong_message;
      idle = moved ? 0 : idle + 1;
      if (idle == kPatience && any_moves()) idle = 0;
    }
    return ended() ? NcclEnd::done : NcclEnd::hangs;
  }

 private:
  static constexpr int kPatience = 40;

  struct Queued {
    int call = -1;
    std::size_t computed = 0;  // steps that the computation must have done before
    bool started = false;
  };
  struct Rank {
    std::size_t host = 0;                      // next step of the host
    std::size_t computed = 0;                  // steps of the computation that are done
    std::map<int, std::deque<Queued>> queues;  // by communicator
    std::vector<int> parts_left;               // per call
  };
  struct Started {
    int rank = -1;
    int call = -1;
    int content = -1;
  };

  const QueueProgram& program(int rank) const { return programs_.ranks[to_index(rank)]; }

  bool any_moves() {
    bool moved = false;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) moved = move(rank) || moved;
    return moved;
  }

  // One thing that the rank's host, computation or a stream can do, tried from a random one on.
  bool move(int rank) {
    const int actors = 2 + static_cast<int>(ranks_[to_index(rank)].queues.size());
    const int first = draw(random_, actors);
    for (int i = 0; i < actors; ++i) {
      const int actor = (first + i) % actors;
      if (actor == 0 ? move_host(rank) : actor == 1 ? move_computation(rank) : move_stream(rank, actor - 2))
        return true;
    }
    return false;
  }

  // The host never waits.
  bool move_host(int rank) {
    Rank& state = ranks_[to_index(rank)];
    if (state.host == program(rank).steps.size()) return false;
    const auto& step = program(rank).steps[state.host];
    if (step.kind == HostStep::Kind::start) {
      const int communicator = program(rank).calls[to_index(step.call)].communicator;
      state.queues[communicator].push_back({step.call, state.host});
    }
    ++state.host;
    return true;
  }

  bool move_computation(int rank) {
    Rank& state = ranks_[to_index(rank)];
    if (state.computed == state.host) return false;
    const auto& step = program(rank).steps[state.computed];
    if (step.kind == HostStep::Kind::await && state.parts_left[to_index(step.call)] > 0) return false;
    ++state.computed;
    return true;
  }

  bool move_stream(int rank, int number) {
    Rank& state = ranks_[to_index(rank)];
    auto& queue = std::next(state.queues.begin(), number)->second;
    if (queue.empty()) return false;
    Queued& head = queue.front();
    if (!head.started) {
      if (state.computed < head.computed) return false;
      head.started = true;
      start(rank, head.call);
      return true;
    }
    if (state.parts_left[to_index(head.call)] > 0) return false;
    queue.pop_front();
    return true;
  }

  void start(int rank, int number) {
    const auto& call = program(rank).calls[to_index(number)];
    for (const auto& part : call.parts) {
      const Started started{rank, number, part.content};
      if (part.peer < 0) {
        join_collective(call.communicator, started);
      } else if (part.sends) {
        meet(call.communicator, rank, part.peer, started, true);
      } else {
        meet(call.communicator, part.peer, rank, started, false);
      }
    }
  }

  void meet(int communicator, int from, int to, const Started& started, bool sends) {
    auto& waiting = messages_[{communicator, from, to, !sends}];
    if (waiting.empty()) {
      messages_[{communicator, from, to, sends}].push_back(started);
      return;
    }
    const Started other = waiting.front();
    waiting.pop_front();
    wrong_ = wrong_ || other.content != started.content;
    finish(other);
    finish(started);
  }

  void join_collective(int communicator, const Started& started) {
    auto& joined = collectives_[communicator];
    auto& count = joined.starts[started.rank];
    const auto place = count++;
    if (place >= joined.calls.size()) joined.calls.resize(place + 1);
    auto& call = joined.calls[place];
    wrong_ = wrong_ || (!call.empty() && call.front().content != started.content);
    call.push_back(started);
    if (call.size() < programs_.communicators[to_index(communicator)].size()) return;
    for (const auto& member : call) finish(member);
  }

  void finish(const Started& started) { --ranks_[to_index(started.rank)].parts_left[to_index(started.call)]; }

  bool ended() const {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const Rank& state = ranks_[to_index(rank)];
      if (state.computed < program(rank).steps.size()) return false;
      for (const auto& [communicator, queue] : state.queues) {
        if (!queue.empty()) return false;
      }
    }
    return true;
  }

  struct Collectives {
    std::map<int, std::size_t> starts;  // by rank
    std::vector<std::vector<Started>> calls;
  };

  const QueuePrograms& programs_;
  std::mt19937& random_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, int, bool>, std::deque<Started>> messages_;  // communicator, from, to, sends
  std::map<int, Collectives> collectives_;
  bool wrong_ = false;
};

}  // namespace orthant::test
