// A job of several launchers: how they meet, end, and what they say to each other.
#include <poll.h>
#include <sys/socket.h>

#include "launch/nodes_fixture.h"
#include "orthant/launch/node_protocol.h"

namespace orthant::launch {
namespace nodes_test {

TEST_F(Nodes, OfDifferentSizesMakeOneWorld) {
  start(node(2, 3, 3), "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT");
  start(node(0, 3, 1), "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT");
  start(node(1, 3, 2), "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0, 0}));
  const auto text = out_.text() + err_.text();
  for (const char* line : {"0 0 6 0 127.0.0.1:", "[rank 1] 1 0 6 1 127.0.0.1:", "[rank 2] 2 1 6 1 127.0.0.1:",
                           "[rank 3] 3 0 6 2 127.0.0.1:", "[rank 5] 5 2 6 2 127.0.0.1:"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
}

TEST_F(Nodes, ReachTheStoreOfNodeZero) {
  for (const int node_rank : {0, 1})
    start(node(node_rank, 2, 1), "exec bash -c 'exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT'");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0})) << err_.text();
}

TEST_F(Nodes, AllEndWhenARankFailsAnywhere) {
  for (int failing = 0; failing < 3; ++failing) {
    const auto rank = std::to_string(2 * failing + 1);
    for (int i = 0; i < 3; ++i) start(node(i, 3), "if [ $RANK = " + rank + " ]; then exit 41; fi; sleep 1000");
    EXPECT_EQ(wait_for_all(), (std::vector<int>{41, 41, 41}));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(board_->failed_rank[i], 2 * failing + 1);
      const auto text = "rank " + rank + ": exit code 41";
      EXPECT_EQ(report(i), i == failing ? text : "node " + std::to_string(failing) + ", " + text);
    }
  }
}

TEST_F(Nodes, AllExitWithThreeWhenARankIsKilled) {
  for (int i = 0; i < 2; ++i) start(node(i, 2), "if [ $RANK = 3 ]; then kill -KILL $$; fi; sleep 1000");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{3, 3}));
  EXPECT_EQ(report(0), "node 1, rank 3: killed by SIGKILL");
}

TEST_F(Nodes, WaitForOneAnotherAndShareTheRequestToStop) {
  start(node(0, 2), "exit 0");
  start(node(1, 2), "sleep 0.1; exit 75");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{75, 75}));
}

TEST_F(Nodes, EndWhenALauncherDies) {
  for (const int victim : {0, 1}) {
    const Fd started = bind_tcp({"127.0.0.1", 0});
    start_listening(started.get());
    const auto port = std::to_string(bound_endpoint(started.get()).port);
    for (int i = 0; i < 2; ++i)
      start(node(i, 2, 1), "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + port + "; sleep 1000'");
    for (int i = 0; i < 2; ++i) Fd(accept4(started.get(), nullptr, nullptr, SOCK_CLOEXEC));
    kill(board_->launcher[victim], SIGKILL);
    auto codes = wait_for_all();
    EXPECT_EQ(codes[victim], -SIGKILL);
    EXPECT_EQ(codes[1 - victim], 3);
    EXPECT_EQ(report(1 - victim), "node " + std::to_string(victim) + ": its launcher is gone");
    std::memset(board_->report, 0, sizeof board_->report);
  }
}

TEST_F(Nodes, AllStopWhenOneLauncherIsTold) {
  for (int i = 0; i < 2; ++i) start(node(i, 2, 1), "if [ $RANK = 1 ]; then kill -TERM $PPID; fi; sleep 1000");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{128 + SIGTERM, 128 + SIGTERM}));
  EXPECT_EQ(report(0), "node 1: stopped by SIGTERM");
  EXPECT_EQ(report(1), "stopped by SIGTERM");
}

TEST_F(Nodes, AreNamedWhenTheyNeverArrive) {
  auto first = node(0, 4);
  first.timeout_seconds = 0.3;
  start(first, "true");
  start(node(2, 4), "true");
  EXPECT_EQ(wait_for_all(), (std::vector<int>{3, 3}));
  EXPECT_NE(report(0).find("of 4 nodes these never arrived: 1, 3"), std::string::npos) << report(0);
  EXPECT_NE(report(2).find("these never arrived: 1, 3"), std::string::npos) << report(2);
}

TEST_F(Nodes, SayWhereNobodyAnswered) {
  listener_.reset();
  listener_ = bind_tcp({"127.0.0.1", 0});  // nobody listens there
  auto options = node(1, 2);
  options.timeout_seconds = 0.1;
  const auto message = message_of<CommError>([&] { meet_once(options); });
  EXPECT_NE(message.find("nobody answered at " + endpoint_text(options.rendezvous)), std::string::npos) << message;
}

TEST_F(Nodes, ThatDoNotBelongAreRefusedAndTheJobGoesOn) {
  start(node(0, 3, 1), "true");
  LineConnection first(connect_as_member(node(1, 3)));  // the test is node 1 itself
  first.send(Hello{1, 3, 1, "none", 0, 3});
  const auto expect_refusal = [&](const NodeOptions& options, const std::string& reason) {
    const auto message = message_of<ConfigError>([&] { meet_once(options); });
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  expect_refusal(node(1, 3, 1), "there is already a node 1: two launchers have the same --node-rank");
  expect_refusal(node(2, 4, 1), "node 2 expects 4 nodes, node 0 expects 3");
  auto stranger = node(2, 3, 1);
  stranger.run_id = "other";
  expect_refusal(stranger, "node 2 belongs to job 'other', this is job 'none'");
  expect_refusal(node(2, 3, 0), "node 2 announces 0 ranks");
  const auto answer_to = [&](const std::string& text) {
    const Fd fd = connect_as_member(node(1, 3));
    EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    pollfd ready{fd.get(), POLLIN, 0};
    poll(&ready, 1, 20'000);
    char buffer[4096];
    const auto got = recv(fd.get(), buffer, sizeof buffer, 0);
    return std::string(buffer, std::max<ssize_t>(got, 0));
  };
  EXPECT_NE(answer_to("GET / HTTP/1.1\r\n").find("no JSON object"), std::string::npos);
  EXPECT_NE(answer_to("[1,2]\n").find("no JSON object"), std::string::npos);
  EXPECT_NE(answer_to("{\"hello\":1}\n").find("refused"), std::string::npos);
  EXPECT_NE(answer_to("{\"hello\":1,\"version\":99}\n").find("different versions"), std::string::npos);
  EXPECT_NE(answer_to("{\"hello\":1,\"version\":3,\"node_rank\":\"x\"}\n").find("node_rank is not a number"),
            std::string::npos);
  EXPECT_NE(answer_to("{\"end\":0}\n").find("must be a hello"), std::string::npos);
  EXPECT_NE(answer_to(std::string(4097, 'x')).find("longer than 4096"), std::string::npos);
  const Fd silent = connect_tcp(node(1, 3).rendezvous, 20);
  const Fd store = connect_as_member(node(1, 3), Purpose::kStore);  // of the test's only rank
  start(node(2, 3, 1), "true");
  first.send(End{0});
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0})) << report(0) << report(2);
  EXPECT_TRUE(std::holds_alternative<Welcome>(parse_line(first.next_line().value_or(""))));
  EXPECT_EQ(std::get<Place>(parse_line(first.next_line().value_or(""))).rank_offset, 1);
  EXPECT_EQ(std::get<End>(parse_line(first.next_line().value_or(""))).exit_code, 0);
}

TEST_F(Nodes, GiveTheirRanksAProvedConnectionToTheStoreAndNoToken) {
  setenv(kTokenVariable, kTestDigits.c_str(), 1);
  const auto script =
      "case $(readlink /proc/self/fd/${ORTHANT_STORE%%:*}) in socket:*) ;; *) exit 9;; esac; "
      "if tr '\\0' '\\n' < /proc/self/environ | grep -q TOKEN; then exit 10; fi";
  for (const int node_rank : {0, 1}) start(node(node_rank, 2, 2), script);
  unsetenv(kTokenVariable);
  EXPECT_EQ(wait_for_all(), (std::vector<int>{0, 0})) << err_.text();
}

TEST_F(Nodes, SayHowManyRanksReachedTheStore) {
  auto first = node(0, 2);
  first.timeout_seconds = 0.3;
  start(first, "true");
  LineConnection second(connect_as_member(node(1, 2)));  // the test is node 1 itself
  second.send(Hello{1, 2, 3, "none", 0, 2});
  EXPECT_EQ(wait_for_all(), std::vector<int>{3});
  EXPECT_NE(report(0).find("of 3 ranks on other nodes only 0 reached its store"), std::string::npos) << report(0);
}

TEST_F(Nodes, MayBeJustOne) {
  start(node(0, 1, 2), "echo $RANK/$WORLD_SIZE");
  EXPECT_EQ(wait_for_all(), std::vector<int>{0});
  EXPECT_NE(err_.text().find("[rank 1] 1/2"), std::string::npos);
}

TEST_F(Nodes, MustHavePossibleNumbers) {
  auto options = node(0, 2);
  close(options.listen_fd);
  options.listen_fd = -1;
  options.node_rank = 2;
  EXPECT_NE(message_of<ConfigError>([&] { meet_once(options); }).find("node rank 2 of 2 nodes"), std::string::npos);
  options.node_rank = 1;
  options.rendezvous.port = 0;
  EXPECT_NE(message_of<ConfigError>([&] { meet_once(options); }).find("port 0"), std::string::npos);
}

TEST_F(Nodes, MustHaveATokenOrSayThatTheyHaveNone) {
  auto options = node(1, 2);
  options.membership = {};
  const auto message = message_of<ConfigError>([&] { meet_once(options); });
  EXPECT_NE(message.find("2 nodes without a job token"), std::string::npos) << message;
}

TEST(NodeProtocol, ReadsBackWhatItWrites) {
  const auto hello = std::get<Hello>(parse_line(to_line(Hello{1, 2, 3, "id\xff\n"})));
  EXPECT_EQ(hello.node_rank, 1);
  EXPECT_EQ(hello.num_nodes, 2);
  EXPECT_EQ(hello.num_ranks, 3);
  EXPECT_EQ(to_line(Hello{1, 2, 3, "a\nb"}).find('\n'), std::string::npos);
  const auto failure = std::get<Failure>(parse_line(to_line(Failure{1, 5, 41, "rank 5: exit code 41"})));
  EXPECT_EQ(failure.text, "rank 5: exit code 41");
  EXPECT_EQ(failure.exit_code, 41);
  EXPECT_EQ(std::get<Place>(parse_line(to_line(Place{8, 4, "h", 9}))).rank_offset, 4);
  EXPECT_EQ(std::get<End>(parse_line(to_line(End{75}))).exit_code, 75);
  EXPECT_EQ(std::get<Refusal>(parse_line(to_line(Refusal{"no"}))).reason, "no");
  EXPECT_TRUE(std::holds_alternative<Welcome>(parse_line(to_line(Welcome{}))));
}

TEST(NodeProtocol, HasNoFailureThatIsASuccess) {
  for (const char* code :
       {"0", "-1", "256", "4294967296", "18446744073709551616", "1.5", "true", "\"3\"", "null", "[3]"}) {
    const auto line = std::string(R"({"failed":"x","node":1,"rank":3,"exit_code":)") + code + "}";
    const auto message = message_of<ConfigError>([&] { parse_line(line); });
    EXPECT_NE(message.find("exit_code is not a number from 1 to 255"), std::string::npos) << message;
  }
  for (const int code : {1, 3, 41, 75, 255}) {
    EXPECT_EQ(std::get<Failure>(parse_line(to_line(Failure{1, 3, code, "x"}))).exit_code, code);
  }
}

TEST(NodeProtocol, BoundsItsNumbers) {
  for (const char* line :
       {R"({"end":1})", R"({"end":-1})", R"({"end":76})", R"({"end":"0"})", R"({"end":0.0})", R"({})",
        R"({"failed":"x","node":-1,"rank":3,"exit_code":3})", R"({"failed":"x","node":1,"rank":-2,"exit_code":3})",
        R"({"failed":"x","node":1,"exit_code":3})", R"({"failed":3,"node":1,"rank":3,"exit_code":3})",
        R"({"world_size":0,"rank_offset":0,"master_address":"a","master_port":1})",
        R"({"world_size":2,"rank_offset":-1,"master_address":"a","master_port":1})",
        R"({"world_size":2,"rank_offset":0,"master_address":"a","master_port":65536})"}) {
    const auto message = message_of<ConfigError>([&] { parse_line(line); });
    EXPECT_NE(message.find("not a message of orthant's launcher"), std::string::npos) << line;
  }
}

TEST(NodeProtocol, CannotDriveATerminal) {
  const auto wild =
      std::get<Failure>(parse_line(R"({"failed":"\u001b[2J\nfake \u202e","node":1,"rank":3,"exit_code":3})"));
  EXPECT_EQ(wild.text, "\\x1b[2J\\x0afake \\xe2\\x80\\xae");
  const std::string long_text(5000, '\x1b');
  const auto line = to_line(Failure{1, 3, 3, long_text});
  EXPECT_LT(line.size(), LineConnection::kLongestLine);
  EXPECT_EQ(std::get<Failure>(parse_line(line)).text.size(), kLongestPeerText);
  EXPECT_EQ(std::get<Refusal>(parse_line(R"({"refused":"a\u0007b"})")).reason, "a\\x07b");
}

}  // namespace nodes_test
}  // namespace orthant::launch
