// Launchers of one job, each a process of its own, and strangers who want to be heard.
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "launch/job_token.h"
#include "launch/launch_fixture.h"
#include "launch/shared_memory.h"
#include "orthant/base/error.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/handshake.h"
#include "orthant/launch/member_connection.h"
#include "orthant/launch/node_protocol.h"
#include "orthant/launch/nodes.h"

namespace orthant::launch {
namespace strangers_test {

struct Board {
  char report[2][512];
  char said[2][2048];
};

class Strangers : public LauncherTest {
 protected:
  void SetUp() override {
    // Held, so that nobody else gets the port before node 0 does, and not listened on, so that node 0 can.
    held_ = bind_tcp({"127.0.0.1", 0});
    const int on = 1;
    setsockopt(held_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    rendezvous_ = bound_endpoint(held_.get());
    LauncherTest::SetUp();
  }

  // Starts the launcher of a node with one rank, which runs a shell script.
  void start(int node_rank, const std::string& script, const std::string& digits = kTestDigits) {
    const pid_t pid = fork();
    if (pid == 0) _exit(launch(node_rank, script, digits));
    launchers_.push_back(pid);
  }

  std::vector<int> wait_for_all() { return wait_for(launchers_); }

  Fd visit() { return connect_tcp(rendezvous_, 20); }

  static void say(const Fd& fd, const std::string& text) { send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL); }

  // Blocks until the other side has closed the connection.
  static void wait_for_close(const Fd& fd) {
    pollfd ready{fd.get(), POLLIN, 0};
    for (char buffer[256]; poll(&ready, 1, 20'000) > 0;) {
      if (recv(fd.get(), buffer, sizeof buffer, 0) <= 0) return;
    }
    ADD_FAILURE() << "the connection is still open";
  }

  std::string said(int node_rank) const { return board_->said[node_rank]; }
  std::string report(int node_rank) const { return board_->report[node_rank]; }

  Fd held_;
  Endpoint rendezvous_;
  SharedMemory<Board> board_;
  std::vector<pid_t> launchers_;

 private:
  int launch(int node_rank, const std::string& script, const std::string& digits) {
    NodeOptions options;
    options.node_rank = node_rank;
    options.num_nodes = 2;
    options.rendezvous = rendezvous_;
    options.timeout_seconds = 20;
    options.membership = with_token(digits);
    options.say = [&](const std::string& text) { std::strncat(board_->said[node_rank], (text + "\n").c_str(), 1000); };
    Outcome outcome;
    try {
      const auto link = join_nodes(options);
      SignalWatch signals;
      LocalOptions local = options_;
      local.signals = &signals;
      link->meet(signals);
      ProgramHooks hooks;
      hooks.events = link.get();
      hooks.after_spawn = [](int fd, const std::string&, int) { return std::make_shared<Fd>(fd); };
      outcome = run_program(local, {"sh", "-c", script}, process_environment(), link->take_job(), hooks);
    } catch (const Error& error) {
      outcome = {error.exit_code(), -1, error.what()};
    }
    std::strncpy(board_->report[node_rank], outcome.report.c_str(), sizeof board_->report[0] - 1);
    return outcome.exit_code;
  }
};

const char* kHello =
    R"({"hello":"orthant","version":3,"node_rank":1,"num_nodes":2,"num_ranks":1,"run_id":"none","max_restarts":0,"min_nodes":2})";

TEST_F(Strangers, CannotJoinAndReportASuccess) {
  start(0, "echo trained");
  const Fd stranger = visit();
  say(stranger, std::string(kHello) + "\n{\"failed\":\"all is well\",\"node\":1,\"rank\":1,\"exit_code\":0}\n");
  wait_for_close(stranger);
  start(1, "true");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0})) << report(0);
  EXPECT_NE(out_.text().find("trained"), std::string::npos);
  EXPECT_NE(said(0).find("a connection from 127.0.0.1 to the launcher of node 0"), std::string::npos) << said(0);
  EXPECT_NE(said(0).find("what it sent is no answer to the challenge"), std::string::npos) << said(0);
  EXPECT_EQ(said(1), "");
}

TEST_F(Strangers, CannotEndARunningJob) {
  const Fd started = bind_tcp({"127.0.0.1", 0});
  start_listening(started.get());
  const auto port = std::to_string(bound_endpoint(started.get()).port);
  for (const int node : {0, 1})
    start(node, "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + port + "; read -u 3; exit 0'");
  std::vector<Fd> ranks;
  for (int i = 0; i < 2; ++i) ranks.emplace_back(accept4(started.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (const char* line : {R"({"end":0})", R"({"failed":"x","node":1,"rank":1,"exit_code":0})", kHello}) {
    const Fd stranger = visit();
    say(stranger, std::string(line) + "\n");
    wait_for_close(stranger);
  }
  for (const auto& rank : ranks) say(rank, "go\n");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0})) << report(0) << report(1);
}

TEST_F(Strangers, WithAnotherTokenAreKeptOutAndSaidSo) {
  start(0, "true");
  const Fd stranger = visit();
  const auto problem =
      prove_membership(stranger.get(), with_token(std::string(64, '5')), Purpose::kNode, Clock::now() + seconds(20));
  EXPECT_EQ(problem, "it did not accept this side's token");
  start(1, "true");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0}));
  EXPECT_NE(said(0).find("its token is not the token of this job"), std::string::npos) << said(0);
}

TEST_F(Strangers, WhoListenInPlaceOfNodeZeroAreNotBelieved) {
  start(1, "true");
  Fd impostor = bind_tcp(rendezvous_);
  start_listening(impostor.get());
  {  // the old protocol's answer, and a challenge of somebody without the token
    const Fd first(accept4(impostor.get(), nullptr, nullptr, SOCK_CLOEXEC));
    say(first, std::string(R"({"world_size":1,"rank_offset":0,"master_address":"127.0.0.1","master_port":1})") + "\n");
    wait_for_close(first);
    const auto wrong = with_token(std::string(64, '6'));
    const Fd second(accept4(impostor.get(), nullptr, nullptr, SOCK_CLOEXEC));
    constexpr Purpose kForNode[] = {Purpose::kNode};
    ServerHandshake handshake(wrong, kForNode);
    send(second.get(), handshake.challenge().data(), kChallengeBytes, MSG_NOSIGNAL);
    Answer answer;
    recv(second.get(), answer.data(), answer.size(), MSG_WAITALL);
    handshake.take(answer);
    auto verdict = handshake.verdict();
    verdict[11] = std::byte{0};
    send(second.get(), verdict.data(), verdict.size(), MSG_NOSIGNAL);
    wait_for_close(second);
  }
  impostor.reset();
  start(0, "true");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0})) << report(0) << report(1);
  EXPECT_NE(said(1).find("did not prove to be node 0 of this job: it is not a program of orthant; trying again"),
            std::string::npos)
      << said(1);
  EXPECT_NE(said(1).find("its token is not the token of this job; trying again"), std::string::npos) << said(1);
}

// A member with a mind of its own: it has the token, and still its word is bounded.
TEST_F(Strangers, MembersCannotFailWithZeroEither) {
  start(0, "sleep 1000");
  const Fd fd = visit();
  ASSERT_EQ(prove_membership(fd.get(), with_token(), Purpose::kNode, Clock::now() + seconds(20)), std::nullopt);
  const Fd store = connect_as_member(rendezvous_, with_token(), Purpose::kStore, "node 0", 20, nullptr);
  say(fd, std::string(kHello) + "\n{\"failed\":\"all is well\",\"node\":1,\"rank\":1,\"exit_code\":0}\n");
  EXPECT_EQ(wait_for_all(), std::vector<int>{3});
  EXPECT_NE(report(0).find("node 1: not a message of orthant's launcher: exit_code is not a number from 1 to 255"),
            std::string::npos)
      << report(0);
}

TEST_F(Strangers, MembersSpeakForTheirOwnRanksOnly) {
  start(0, "sleep 1000");
  const Fd fd = visit();
  ASSERT_EQ(prove_membership(fd.get(), with_token(), Purpose::kNode, Clock::now() + seconds(20)), std::nullopt);
  const Fd store = connect_as_member(rendezvous_, with_token(), Purpose::kStore, "node 0", 20, nullptr);
  say(fd, std::string(kHello) + "\n{\"failed\":\"\\u001b[1mrank 0 lies\",\"node\":0,\"rank\":0,\"exit_code\":41}\n");
  EXPECT_EQ(wait_for_all(), std::vector<int>{41});
  EXPECT_EQ(report(0), "\\x1b[1mrank 0 lies");
}

}  // namespace strangers_test
}  // namespace orthant::launch
