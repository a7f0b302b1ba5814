// Node 0's side of a job on several hosts: admits the others, tells everybody their place, passes failures on. The
// meetings are in node_hub_meeting.cpp, what happens during an attempt in node_hub.cpp.
#pragma once

#include <list>
#include <map>
#include <set>

#include "orthant/launch/doorman.h"
#include "orthant/launch/heartbeat.h"
#include "orthant/launch/node_protocol.h"
#include "orthant/launch/nodes.h"

namespace orthant::launch {

class NodeHub final : public NodeLink {
 public:
  // Listens from now on.
  explicit NodeHub(const NodeOptions& options);
  ~NodeHub() override;

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
  // A member that has not yet said which node it is, or has said so while there is no meeting that it can enter.
  struct Visitor {
    LineConnection connection;
    Clock::time_point since;
    std::optional<Hello> waiting = {};
  };
  struct Node {
    LineConnection connection;
    Heartbeat heartbeat;
    int num_ranks = 1;
    bool is_ready = true;  // has said hello for the next attempt
    int first_rank = 0;    // in the attempt
    std::optional<int> end = {};
  };

  void begin_meeting();
  void let_waiting_in();
  void regroup_for_waiting();
  void welcome(Node& node);
  void start();
  [[noreturn]] void give_up_waiting();
  std::set<int> missing() const;
  int num_ranks() const;  // of all nodes that are ready
  bool is_complete(Clock::time_point began) const;
  void drop_unready();
  void drop_lost_store_connections();
  void let_members_in();
  void hear_visitors();
  bool hear_visitor(Visitor& visitor);
  std::string refusal_of(const Hello& hello) const;
  bool must_wait(const Hello& hello) const;
  void admit(LineConnection connection, const Hello& hello);
  void refuse(LineConnection& connection, const std::string& reason);
  void hear_nodes();
  void handle(int node_rank, Node& node, const std::string& line);
  void hear_hello(int node_rank, Node& node, const Hello& hello);
  void hear_over(const Over& over);
  Failure as_told_by(int node_rank, Failure failure) const;
  void watch_hearts();
  void lose(int node_rank, const std::string& how);
  void note_failure(Failure failure);
  void broadcast(const Message& message);
  void end_if_all_ended();

  NodeOptions options_;
  Doorman doorman_;
  Fd c10d_store_;
  std::vector<Fd> store_connections_;  // of the other nodes' ranks
  Place place_;
  std::list<Visitor> visitors_;
  std::map<int, Node> nodes_;  // the others
  std::optional<int> own_end_;
  bool in_attempt_ = false;
  int num_meetings_ = 0;
  bool failed_ = false;  // known everywhere, whoever noticed
  std::optional<Failure> failure_;
  std::optional<int> common_end_;
  bool regroup_asked_ = false;
  std::optional<Outcome> over_;
};

}  // namespace orthant::launch
