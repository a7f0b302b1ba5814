// Node 0's side of a job on several hosts: admits the others, tells everybody their place, passes failures on.
#pragma once

#include <list>
#include <map>
#include <set>

#include "orthant/launch/doorman.h"
#include "orthant/launch/node_protocol.h"
#include "orthant/launch/nodes.h"

namespace orthant::launch {

class NodeHub final : public NodeLink {
 public:
  // Listens, then blocks until all other nodes have come or the timeout has passed (CommError).
  explicit NodeHub(const NodeOptions& options);
  ~NodeHub() override;

  ProgramJob take_job() override;
  void add_poll_fds(std::vector<pollfd>& fds) const override;
  std::optional<Clock::time_point> next_deadline() const override;
  void service() override;
  const std::optional<Failure>& failure() const override { return failure_; }
  void announce_failure(const Failure& failure) override;
  void announce_end(int exit_code) override;
  std::optional<int> common_end() const override { return common_end_; }

 private:
  struct Visitor {
    LineConnection connection;
    Clock::time_point since;
  };

  void wait_for_all();
  void start();
  std::set<int> missing() const;
  int num_ranks() const;  // of all nodes that are here
  bool is_complete() const;
  void drop_lost_store_connections();
  void let_members_in();
  void hear_visitors();
  void hear_nodes();
  void admit(Visitor& visitor, const Hello& hello);
  void refuse(LineConnection& connection, const std::string& reason);
  void handle(int node_rank, const std::string& line);
  Failure as_told_by(int node_rank, Failure failure) const;
  void lose(int node_rank);
  void note_failure(Failure failure);
  void broadcast(const Message& message);
  void end_if_all_ended();

  NodeOptions options_;
  Doorman doorman_;
  Fd c10d_store_;
  std::vector<Fd> store_connections_;  // of the other nodes' ranks
  Place place_;
  std::list<Visitor> visitors_;  // members that have not yet said which node they are
  std::map<int, LineConnection> nodes_;
  std::map<int, int> num_ranks_;  // by node rank, this node included
  std::map<int, int> ended_;      // node rank -> exit code
  bool started_ = false;
  bool failed_ = false;  // known everywhere, whoever noticed
  std::optional<Failure> failure_;
  std::optional<int> common_end_;
};

}  // namespace orthant::launch
