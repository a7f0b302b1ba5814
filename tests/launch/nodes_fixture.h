// Several launchers on this machine, each a process of its own, as on several hosts.
#pragma once

#include <cstring>
#include <functional>

#include "launch/job_token.h"
#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "launch/shared_memory.h"
#include "orthant/base/error.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/handshake.h"
#include "orthant/launch/nodes.h"
#include "orthant/launch/restarts.h"

namespace orthant::launch {
namespace nodes_test {

struct Board {
  volatile pid_t launcher[4];
  volatile int started[8];
  volatile int failed_rank[4];
  char report[4][512];
  char said[4][2048];
};

class Nodes : public LauncherTest {
 protected:
  void SetUp() override {
    listener_ = bind_tcp({"127.0.0.1", 0});
    start_listening(listener_.get());
    LauncherTest::SetUp();
  }

  NodeOptions node(int node_rank, int num_nodes, int num_ranks = 2) {
    NodeOptions options;
    options.node_rank = node_rank;
    options.num_nodes = num_nodes;
    options.num_ranks = num_ranks;
    options.rendezvous = bound_endpoint(listener_.get());
    if (node_rank == 0) options.listen_fd = dup(listener_.get());
    options.timeout_seconds = 20;
    options.membership = with_token();
    return options;
  }

  // Starts a launcher process that runs a shell script on its ranks.
  pid_t start(const NodeOptions& options, const std::string& script) {
    const pid_t pid = fork();
    if (pid == 0) {
      // The listening socket is node 0's alone, as on a real host.
      listener_.reset();
      _exit(launch(options, script));
    }
    if (options.listen_fd >= 0) close(options.listen_fd);
    board_->launcher[options.node_rank] = pid;
    launchers_.push_back(pid);
    return pid;
  }

  // The exit codes of all launchers, in the order they were started.
  std::vector<int> wait_for_all() { return wait_for(launchers_); }

  // A connection that has proved its membership and said nothing else.
  static Fd connect_as_member(const NodeOptions& options, Purpose purpose = Purpose::kNode) {
    Fd fd = connect_tcp(options.rendezvous, 20);
    const auto problem = prove_membership(fd.get(), options.membership, purpose, Clock::now() + seconds(20));
    EXPECT_FALSE(problem) << *problem;
    return fd;
  }

  std::string report(int node_rank) const { return board_->report[node_rank]; }
  std::string said(int node_rank) const { return board_->said[node_rank]; }

  // Throws what the meeting throws.
  static void meet_once(const NodeOptions& options) {
    SignalWatch signals;
    join_nodes(options)->meet(signals);
  }

  Fd listener_;
  SharedMemory<Board> board_;
  std::vector<pid_t> launchers_;

 private:
  void tell(int node_rank, const std::string& text) {
    std::strncat(board_->said[node_rank], (text + "\n").c_str(),
                 sizeof board_->said[0] - std::strlen(board_->said[node_rank]) - 1);
  }

  int launch(NodeOptions options, const std::string& script) {
    Outcome outcome;
    options.membership = with_token();  // the one of the process that forked this one is not inherited
    try {
      const auto link = join_nodes(options);
      SignalWatch signals;
      LocalOptions local = options_;
      local.num_ranks = options.num_ranks;
      local.signals = &signals;
      ProgramHooks hooks;
      hooks.events = link.get();
      hooks.after_spawn = [](int fd, const std::string&, int) { return std::make_shared<Fd>(fd); };
      const RestartOptions restarts{.max_restarts = options.max_restarts,
                                    .decided_elsewhere = options.node_rank > 0 && options.max_restarts > 0,
                                    .say = [&](const std::string& text) { tell(options.node_rank, text); }};
      outcome = run_attempts(restarts, signals, [&](int) {
        if (auto over = link->meet(signals)) return *over;
        return run_program(local, {"sh", "-c", script}, process_environment(), link->take_job(), hooks);
      });
      link->leave(outcome);
    } catch (const Error& error) {
      outcome = {error.exit_code(), -1, error.what()};
    }
    std::strncpy(board_->report[options.node_rank], outcome.report.c_str(), sizeof board_->report[0] - 1);
    board_->failed_rank[options.node_rank] = outcome.failed_rank;
    return outcome.exit_code;
  }
};

}  // namespace nodes_test
}  // namespace orthant::launch
