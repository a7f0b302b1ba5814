// The side of every node but node 0 of a job on several hosts: connects to node 0, and again where the connection broke
// between two attempts.
#pragma once

#include <set>
#include <vector>

#include "orthant/launch/heartbeat.h"
#include "orthant/launch/node_protocol.h"
#include "orthant/launch/nodes.h"

namespace orthant::launch {

class NodeMember final : public NodeLink {
 public:
  explicit NodeMember(const NodeOptions& options);

  std::optional<Outcome> meet(SignalWatch& signals) override;
  ProgramJob take_job() override;
  void leave(const Outcome& outcome) override;
  void add_poll_fds(std::vector<pollfd>& fds) const override;
  std::optional<Clock::time_point> next_deadline() const override;
  void service() override;
  const std::optional<Failure>& failure() const override { return failure_; }
  bool regroup_asked() const override { return regroup_asked_; }
  void announce_failure(const Failure& failure) override;
  void announce_end(int exit_code) override;
  std::optional<int> common_end() const override { return common_end_; }

 private:
  void begin_meeting();
  bool connect(SignalWatch& signals, Clock::time_point deadline);
  bool await_place(SignalWatch& signals, Clock::time_point deadline);
  bool stop_if_asked(SignalWatch& signals);
  [[noreturn]] void throw_refusal(const Refusal& refusal) const;
  void add_store_connection(Clock::time_point deadline);
  void take_place(const Place& place);
  void hear(const std::string& line);
  void say_once(const std::string& text);

  NodeOptions options_;
  std::optional<LineConnection> connection_;  // to node 0
  std::vector<Fd> store_connections_;         // one for each rank of this node
  Place place_;
  bool has_met_ = false;
  Heartbeat heartbeat_;
  std::optional<Failure> failure_;
  std::optional<int> common_end_;
  bool regroup_asked_ = false;
  std::optional<Outcome> over_;
  std::set<std::string> said_;
};

}  // namespace orthant::launch
