// What strangers at a port can do, and what they cannot.
#include "orthant/launch/doorman.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <deque>
#include <thread>

#include "launch/job_token.h"

namespace orthant::launch {
namespace doorman_test {

class Doors : public ::testing::Test {
 protected:
  Doors() {
    Fd listener = bind_tcp({"127.0.0.1", 0});
    start_listening(listener.get());
    where_ = bound_endpoint(listener.get());
    doorman_.emplace(std::move(listener), with_token(), std::vector{Purpose::kNode}, "the door",
                     [this](const std::string& text) { said_.push_back(text); });
  }

  Fd visit() { return connect_tcp(where_, 10); }

  // Linux has all of 127.0.0.0/8.
  Fd visit_from(const std::string& address) {
    Fd fd = bind_tcp({address, 0});
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    getsockname(doorman_->listener(), reinterpret_cast<sockaddr*>(&storage), &length);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
    return fd;
  }

  // Serves until the condition holds; returns whoever was let in meanwhile.
  template <typename Condition>
  std::vector<Doorman::Member> serve_until(const Condition& done) {
    std::vector<Doorman::Member> members;
    const auto deadline = Clock::now() + seconds(20);
    while (!done(members) && Clock::now() < deadline) {
      std::vector<pollfd> fds;
      doorman_->add_poll_fds(fds);
      poll(fds.data(), fds.size(), 10);
      for (auto& member : doorman_->service()) members.push_back(std::move(member));
    }
    return members;
  }

  // How a member fares that comes now.
  std::optional<std::string> join() {
    std::optional<std::string> problem = "never";
    std::thread member([&] {
      const Fd fd = visit();
      problem = prove_membership(fd.get(), with_token(), Purpose::kNode, Clock::now() + seconds(10));
    });
    serve_until([](const auto& members) { return !members.empty(); });
    member.join();
    return problem;
  }

  static void say(const Fd& fd, const std::string& text) { send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL); }

  Endpoint where_;
  std::vector<std::string> said_;
  std::optional<Doorman> doorman_;
};

const std::string kTurnedAway =
    "a connection from 127.0.0.1 to the door did not prove that it belongs to the job and was turned away: ";

TEST_F(Doors, OpenForMembers) {
  EXPECT_EQ(join(), std::nullopt);
  EXPECT_TRUE(said_.empty()) << said_[0];
}

TEST_F(Doors, AreNamedOncePerReasonAndCountedAtTheEnd) {
  for (int i = 0; i < 5; ++i) {
    const Fd fd = visit();
    say(fd, "GET / HTTP/1.1\r\n\r\n");
    serve_until([&](const auto&) {
      char byte;
      for (;;) {  // the challenge, then the verdict, then the end
        const auto got = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
        if (got <= 0) return got == 0 || errno == ECONNRESET;
      }
    });
  }
  EXPECT_EQ(said_, std::vector<std::string>{kTurnedAway + "what it sent is no answer to the challenge"});
  doorman_.reset();
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_EQ(said_[1], "4 more connections from 127.0.0.1 were turned away: what it sent is no answer to the challenge");
}

TEST_F(Doors, NoticeWhoLeavesWithoutAnAnswer) {
  visit().reset();
  serve_until([&](const auto&) { return !said_.empty(); });
  EXPECT_EQ(said_, std::vector<std::string>{kTurnedAway + "it left without an answer to the challenge"});
}

TEST_F(Doors, HaveADeadlineForWhoIsSilent) {
  const Fd silent = visit();
  serve_until([&](const auto&) { return doorman_->next_deadline().has_value(); });
  const auto left = *doorman_->next_deadline() - Clock::now();
  EXPECT_GT(left, seconds(kProofSeconds - 2));
  EXPECT_LE(left, seconds(kProofSeconds));
}

TEST_F(Doors, AreNotClosedToMembersByACrowd) {
  std::deque<Fd> crowd;
  const auto grow = [&] {
    crowd.push_back(visit());
    serve_until([](const auto&) { return true; });
    doorman_->service();
  };
  for (std::size_t i = 0; i < Doorman::kMostVisitors + 50; ++i) grow();
  std::vector<pollfd> fds;
  doorman_->add_poll_fds(fds);
  EXPECT_EQ(fds.size(), 1 + Doorman::kMostVisitors);
  EXPECT_EQ(join(), std::nullopt);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_EQ(said_[0], kTurnedAway + "too many others were waiting");
}

TEST_F(Doors, LoseOnlyThoseOfTheAddressThatCrowdsThem) {
  const Fd other = visit_from("127.0.0.2");  // the first to come
  serve_until([&](const auto&) { return doorman_->next_deadline().has_value(); });
  std::deque<Fd> crowd;
  for (std::size_t i = 0; i < Doorman::kMostVisitors + 20; ++i) {
    crowd.push_back(visit());
    doorman_->service();
  }
  std::optional<std::string> problem = "never";
  std::thread member(
      [&] { problem = prove_membership(other.get(), with_token(), Purpose::kNode, Clock::now() + seconds(10)); });
  serve_until([](const auto& members) { return !members.empty(); });
  member.join();
  EXPECT_EQ(problem, std::nullopt);
}

TEST_F(Doors, LoseTheOldestOfManyNetworksAndNotTheFirstByName) {
  std::deque<Fd> crowd;
  const auto grow = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      crowd.push_back(visit_from("127.1." + std::to_string(i % 255) + "." + std::to_string(i / 255 + 1)));
      doorman_->service();
    }
  };
  grow(0, 255);
  const Fd own = visit_from("127.0.0.1");  // 256 networks of one visitor each
  doorman_->service();
  grow(255, 300);
  std::optional<std::string> problem = "never";
  std::thread member(
      [&] { problem = prove_membership(own.get(), with_token(), Purpose::kNode, Clock::now() + seconds(10)); });
  serve_until([](const auto& members) { return !members.empty(); });
  member.join();
  EXPECT_EQ(problem, std::nullopt);
}

TEST(Network, IsTwentyFourBitsOfIpv4AndSixtyFourOfIpv6) {
  EXPECT_EQ(network_of("10.1.2.3"), network_of("10.1.2.250"));
  EXPECT_NE(network_of("10.1.2.3"), network_of("10.1.3.3"));
  EXPECT_NE(network_of("::ffff:10.1.2.3"), network_of("::ffff:10.1.3.3"));
  EXPECT_EQ(network_of("2001:db8:0:1::1"), network_of("2001:db8:0:1:ffff::2"));
  EXPECT_NE(network_of("2001:db8:0:1::1"), network_of("2001:db8:0:2::1"));
  EXPECT_EQ(network_of("fe80::1%eth0"), network_of("fe80::2%eth1"));
}

TEST_F(Doors, KeepWhatTheySayBounded) {
  for (int i = 0; i < 3 * static_cast<int>(Doorman::kMostComplaints); ++i) {
    const Fd fd = visit_from("127.0.1." + std::to_string(i + 1));
    say(fd, "nonsense");
    for (int turn = 0; turn < 3; ++turn) doorman_->service();
  }
  EXPECT_EQ(said_.size(), Doorman::kMostComplaints + 1);
  EXPECT_NE(said_.back().find("from other addresses"), std::string::npos) << said_.back();
}

}  // namespace doorman_test
}  // namespace orthant::launch
