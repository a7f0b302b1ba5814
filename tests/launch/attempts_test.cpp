// Launchers that meet again after a failure: attempts of one job on several hosts.
#include <poll.h>

#include "launch/nodes_fixture.h"
#include "orthant/launch/node_protocol.h"

namespace orthant::launch {
namespace nodes_test {

class Attempts : public Nodes {
 protected:
  void TearDown() override {
    door_.reset();
    Nodes::TearDown();
  }

  NodeOptions again(int node_rank, int num_nodes, int max_restarts = 3) {
    auto options = node(node_rank, num_nodes, 1);
    options.max_restarts = max_restarts;
    return options;
  }

  // A socket that ranks connect to when they run: whoever accepts knows that they do.
  std::string door() {
    door_ = bind_tcp({"127.0.0.1", 0});
    start_listening(door_.get());
    return "exec 3<>/dev/tcp/127.0.0.1/" + std::to_string(bound_endpoint(door_.get()).port) + "; ";
  }

  void await_ranks(int count) {
    for (int i = 0; i < count; ++i) Fd(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  Fd door_;
};

TEST_F(Attempts, FollowALostRankOnAnyNodeAndKnowTheirNumber) {
  for (int i = 0; i < 3; ++i) {
    start(again(i, 3),
          "if [ $TORCHELASTIC_RESTART_COUNT = $RANK ]; then kill -KILL $$; fi; "
          "if [ $TORCHELASTIC_RESTART_COUNT -lt 3 ]; then sleep 1000; fi; echo $RANK of $WORLD_SIZE");
  }
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0, 0})) << report(0) << report(1);
  EXPECT_EQ(said(0),
            "rank 0: killed by SIGKILL\nstarting all ranks again (1 of 3)\n"
            "node 1, rank 1: killed by SIGKILL\nstarting all ranks again (2 of 3)\n"
            "node 2, rank 2: killed by SIGKILL\nstarting all ranks again (3 of 3)\n");
  const std::string again = "meeting the other hosts for another attempt\n";
  EXPECT_EQ(said(2), "node 0, rank 0: killed by SIGKILL\n" + again + "node 1, rank 1: killed by SIGKILL\n" + again +
                         "rank 2: killed by SIGKILL\n" + again);
  const auto text = out_.text() + err_.text();
  for (const char* line : {"0 of 3\n", "1 of 3\n", "2 of 3\n"}) EXPECT_NE(text.find(line), std::string::npos) << text;
}

TEST_F(Attempts, EndWhereNodeZeroGivesUp) {
  for (int i = 0; i < 2; ++i) start(again(i, 2, 1), "if [ $RANK = 1 ]; then exit 41; fi; sleep 1000");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{41, 41}));
  EXPECT_EQ(report(0), "node 1, rank 1: exit code 41");
  EXPECT_EQ(report(1), "node 0 starts no further attempt");
}

TEST_F(Attempts, AreNotMadeAfterBadData) {
  for (int i = 0; i < 2; ++i) start(again(i, 2), "if [ $RANK = 1 ]; then exit 4; fi; sleep 1000");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{4, 4}));
  EXPECT_EQ(said(0), "");
}

TEST_F(Attempts, AreJoinedByALauncherThatWasStartedAgain) {
  const auto script = "bash -c '" + door() + "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 1000; fi'";
  start(again(0, 2), "exec " + script);
  const pid_t lost = start(again(1, 2), "exec " + script);
  await_ranks(2);
  kill(lost, SIGKILL);
  start(again(1, 2), "exec " + script);
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, -SIGKILL, 0})) << report(0) << report(1);
  EXPECT_EQ(said(0), "node 1: its launcher is gone\nstarting all ranks again (1 of 3)\n");
}

TEST_F(Attempts, GoOnWithoutALauncherThatFellSilentAndItJoinsLater) {
  const auto script = "exec bash -c '" + door() + "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 1000; fi'";
  std::vector<pid_t> launchers;
  for (int i = 0; i < 2; ++i) {
    auto options = again(i, 2);
    if (i == 0) options.timeout_seconds = 1;
    launchers.push_back(start(options, script));
  }
  await_ranks(2);
  kill(launchers[1], SIGSTOP);
  while (said(0).find("starting all ranks again") == std::string::npos) usleep(1000);
  kill(launchers[1], SIGCONT);
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0})) << report(0) << report(1);
  EXPECT_NE(said(0).find("node 1: its launcher was silent for 1."), std::string::npos) << said(0);
  EXPECT_EQ(said(1), "node 0: its launcher is gone\nmeeting the other hosts for another attempt\n");
}

TEST_F(Attempts, KeepALauncherWaitingWhoseNodeIsStillThere) {
  start(again(0, 2), "exec bash -c '" + door() + "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 1000; fi'");
  const auto hello = Hello{1, 2, 1, "none", 3, 2};
  auto first = std::make_unique<LineConnection>(connect_as_member(node(1, 2)));  // the test is node 1 itself, twice
  first->send(hello);
  const Fd store = connect_as_member(node(1, 2), Purpose::kStore);
  await_ranks(1);
  LineConnection second(connect_as_member(node(1, 2)));
  second.send(hello);
  first.reset();
  const auto next = [&] {
    EXPECT_TRUE(wait_until(second.fd(), POLLIN, Clock::now() + seconds(20)));
    return parse_line(second.next_line().value_or(""));
  };
  EXPECT_TRUE(std::holds_alternative<Welcome>(next()));
  const Fd next_store = connect_as_member(node(1, 2), Purpose::kStore);
  EXPECT_EQ(std::get<Place>(next()).attempt, 1);
  second.send(End{0});
  EXPECT_EQ(wait_for_all(), std::vector<int>{0}) << report(0);
}

TEST_F(Attempts, AStopBetweenTwoAttemptsEndsTheJobOnAllNodes) {
  for (const int stopped : {0, 1}) {
    std::memset(board_->said, 0, sizeof board_->said);
    const auto script = "if [ $RANK = 2 ]; then kill -KILL $$; fi; sleep 1000";
    std::vector<pid_t> launchers;
    for (int i = 0; i < 2; ++i) launchers.push_back(start(again(i, 3), script));
    const pid_t lost = start(again(2, 3), "kill -KILL $PPID; sleep 1000");
    for (const int i : {0, 1}) {
      while (said(i).find("another attempt") == std::string::npos && said(i).find("again") == std::string::npos) {
        usleep(1000);
      }
    }
    kill(launchers[stopped], SIGTERM);
    EXPECT_EQ(wait_for_all(), (std::vector<int>{75, 75, -SIGKILL})) << lost;
    const std::string text = "stopped on request; the ranks are not started again and what was saved stays";
    EXPECT_EQ(report(stopped), text);
    EXPECT_NE(report(1 - stopped).find(text), std::string::npos) << report(1 - stopped);
  }
}

TEST_F(Attempts, GoOnWithFewerNodesAndGrowAgainAtACheckpoint) {
  // Ranks that are told to end for other hosts end with 75, as a training does that has saved.
  const auto script =
      "exec bash -c 'echo $RANK of $WORLD_SIZE on $GROUP_RANK; " + door() +
      "if [ $TORCHELASTIC_RESTART_COUNT = 2 ]; then exit 0; fi; trap \"exit 75\" TERM; sleep 1000 & wait'";
  const auto elastic = [&](int node_rank) {
    auto options = again(node_rank, 3);
    options.min_nodes = 2;
    options.regroup_seconds = 0.3;
    return options;
  };
  start(elastic(0), script);
  const pid_t lost = start(elastic(1), script);
  start(elastic(2), script);
  await_ranks(3);
  kill(lost, SIGKILL);
  await_ranks(2);
  start(elastic(1), script);
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, -SIGKILL, 0, 0})) << report(0) << report(1) << report(2);
  EXPECT_EQ(said(0),
            "node 1: its launcher is gone\nstarting all ranks again (1 of 3)\n"
            "hosts have come: meeting them for another attempt\n");
  const auto text = out_.text() + err_.text();
  for (const char* line : {"2 of 3 on 2\n", "1 of 2 on 1\n"}) EXPECT_NE(text.find(line), std::string::npos) << text;
}

TEST_F(Attempts, EndWhenFewerNodesThanTheLeastAreThere) {
  for (const int i : {0, 2}) {
    auto options = again(i, 4);
    options.min_nodes = 3;
    options.regroup_seconds = 0.1;
    if (i == 0) options.timeout_seconds = 0.3;
    start(options, "true");
  }
  EXPECT_EQ(wait_for_all(), (std::vector<int>{3, 3}));
  EXPECT_NE(report(0).find("of 4 nodes these never arrived: 1, 3; at least 3 are needed"), std::string::npos)
      << report(0);
}

TEST_F(Attempts, NeedTheSameNumberOfRestartsOnAllNodes) {
  start(again(0, 2, 3), "true");
  const auto message = message_of<ConfigError>([&] { meet_once(again(1, 2, 2)); });
  EXPECT_NE(message.find("node 1 has --max-restarts 2, node 0 has 3"), std::string::npos) << message;
  start(again(1, 2, 3), "true");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0}));
}

}  // namespace nodes_test
}  // namespace orthant::launch
