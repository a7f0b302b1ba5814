// Both sides of the handshake as bytes, and the client's side against servers that lie.
#include "orthant/launch/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <thread>

#include "launch/job_token.h"
#include "launch/message_of.h"
#include "orthant/base/error.h"

namespace orthant::launch {
namespace handshake_test {

using State = ServerHandshake::State;
constexpr Purpose kForNode[] = {Purpose::kNode};
constexpr Purpose kForStore[] = {Purpose::kStore};
constexpr Purpose kForBoth[] = {Purpose::kNode, Purpose::kStore};
const std::string kOtherDigits = std::string(64, '7');

TEST(Handshake, AdmitsWhoHasTheToken) {
  const auto membership = with_token();
  ServerHandshake server(membership, kForNode);
  EXPECT_EQ(server.wanted(), kAnswerBytes);
  EXPECT_EQ(server.take(answer_to(server.challenge(), with_token(), Purpose::kNode, fresh_nonce())), State::kProved);
}

TEST(Handshake, TellsWhatTheMemberCameFor) {
  const auto membership = with_token();
  for (const auto purpose : kForBoth) {
    ServerHandshake server(membership, kForBoth);
    ASSERT_EQ(server.take(answer_to(server.challenge(), membership, purpose, fresh_nonce())), State::kProved);
    EXPECT_EQ(server.purpose(), purpose);
  }
}

TEST(Handshake, TakesItsAnswerByteByByte) {
  const auto membership = with_token();
  ServerHandshake server(membership, kForStore);
  const auto answer = answer_to(server.challenge(), membership, Purpose::kStore, fresh_nonce());
  for (std::size_t i = 0; i + 1 < answer.size(); ++i) {
    EXPECT_EQ(server.take(std::span(answer).subspan(i, 1)), State::kWaiting);
  }
  EXPECT_EQ(server.wanted(), 1U);
  EXPECT_EQ(server.take(std::span(answer).last(1)), State::kProved);
}

TEST(Handshake, RefusesWhoHasNot) {
  const auto membership = with_token();
  const auto refusal = [&](const std::function<Answer(const ServerHandshake&)>& make) {
    ServerHandshake server(membership, kForNode);
    EXPECT_EQ(server.take(make(server)), State::kRefused);
    Verdict verdict = server.verdict();
    for (std::size_t i = kHeadBytes; i < verdict.size(); ++i) EXPECT_EQ(verdict[i], std::byte{0}) << "a proof leaks";
    return server.reason();
  };
  const auto answer_of = [](const Membership& who, Purpose purpose) {
    return [=](const ServerHandshake& server) { return answer_to(server.challenge(), who, purpose, fresh_nonce()); };
  };
  EXPECT_EQ(refusal(answer_of(with_token(kOtherDigits), Purpose::kNode)), "its token is not the token of this job");
  EXPECT_EQ(refusal(answer_of(without_token(), Purpose::kNode)), "it has no token");
  EXPECT_EQ(refusal(answer_of(membership, Purpose::kStore)), "it came for something that is not served here");
  EXPECT_EQ(refusal([](const ServerHandshake&) { return Answer{}; }), "what it sent is no answer to the challenge");
  EXPECT_EQ(refusal([&](const ServerHandshake& server) {
              auto answer = answer_to(server.challenge(), membership, Purpose::kNode, fresh_nonce());
              answer[8] = std::byte{99};
              return answer;
            }),
            "it speaks another version of the protocol");
}

TEST(Handshake, RefusesWhatServedBefore) {
  const auto membership = with_token();
  ServerHandshake first(membership, kForNode);
  const auto answer = answer_to(first.challenge(), membership, Purpose::kNode, fresh_nonce());
  EXPECT_EQ(first.take(answer), State::kProved);
  ServerHandshake second(membership, kForNode);
  EXPECT_EQ(second.take(answer), State::kRefused);
  EXPECT_EQ(second.reason(), "its token is not the token of this job");
}

TEST(Handshake, RefusesItsOwnWordsAndThoseForAnotherPurpose) {
  const auto membership = with_token();
  ServerHandshake server(membership, kForNode);
  const auto answer = answer_to(server.challenge(), membership, Purpose::kNode, fresh_nonce());
  ASSERT_EQ(server.take(answer), State::kProved);
  const auto verdict = server.verdict();
  ServerHandshake reflected(membership, kForNode);
  auto forged = answer;
  std::memcpy(forged.data() + kHeadBytes + kNonceBytes, verdict.data() + kHeadBytes, sizeof(Sha256Digest));
  EXPECT_EQ(reflected.take(forged), State::kRefused);
  ServerHandshake store(membership, kForBoth);
  auto carried = answer_to(store.challenge(), membership, Purpose::kNode, fresh_nonce());
  carried[10] = static_cast<std::byte>(Purpose::kStore);  // the proof was made for the other purpose
  EXPECT_EQ(store.take(carried), State::kRefused);
  EXPECT_EQ(store.reason(), "its token is not the token of this job");
}

TEST(Handshake, KnowsAnotherLanguageByItsFirstBytes) {
  const auto membership = with_token();
  ServerHandshake server(membership, kForNode);
  const std::string request = "GET /";
  EXPECT_EQ(server.take(std::as_bytes(std::span(request))), State::kRefused);
}

TEST(Handshake, WithoutATokenNeedsBothToSaySo) {
  const auto open = without_token();
  ServerHandshake server(open, kForNode);
  EXPECT_EQ(server.take(answer_to(server.challenge(), open, Purpose::kNode, fresh_nonce())), State::kProved);
  ServerHandshake strict(open, kForNode);
  EXPECT_EQ(strict.take(answer_to(strict.challenge(), with_token(), Purpose::kNode, fresh_nonce())), State::kRefused);
  EXPECT_EQ(strict.reason(), "it has a token, and this job was started with --no-token");
}

// The client's word about a server that is this function on the other end of a connection.
std::optional<std::string> meet_server(const Membership& membership, const std::function<void(int)>& server,
                                       double seconds_left = 10) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd client(ends[0]);
  std::thread other([&, end = ends[1]] {
    const Fd fd(end);
    server(fd.get());
  });
  const auto leave = [&] {
    shutdown(client.get(), SHUT_RDWR);
    other.join();
  };
  try {
    const auto problem =
        prove_membership(client.get(), membership, Purpose::kNode, Clock::now() + seconds(seconds_left));
    leave();
    return problem;
  } catch (...) {
    leave();
    throw;
  }
}

template <typename Frame>
void send_frame(int fd, const Frame& frame) {
  send(fd, frame.data(), frame.size(), MSG_NOSIGNAL);
}

// A server that does as it should with a membership of its own, and spoils its verdict.
std::function<void(int)> serve(const Membership& membership, const std::function<void(Verdict&)>& spoil = nullptr) {
  return [=](int fd) {
    ServerHandshake server(membership, kForNode);
    send_frame(fd, server.challenge());
    Answer answer{};
    if (recv(fd, answer.data(), answer.size(), MSG_WAITALL) <= 0) return;
    server.take(answer);
    auto verdict = server.verdict();
    if (spoil) spoil(verdict);
    send_frame(fd, verdict);
  };
}

TEST(Handshake, IsPassedByBothSides) {
  EXPECT_EQ(meet_server(with_token(), serve(with_token())), std::nullopt);
  EXPECT_EQ(meet_server(without_token(), serve(without_token())), std::nullopt);
}

TEST(Handshake, OfAnImpostorIsNotBelieved) {
  EXPECT_EQ(meet_server(with_token(), [](int) {}), "it sent no challenge");
  EXPECT_EQ(meet_server(with_token(), [](int fd) { send_frame(fd, std::string(1000, 'x')); }),
            "it is not a program of orthant");
  EXPECT_EQ(meet_server(with_token(), serve(with_token(kOtherDigits))), "it did not accept this side's token");
  EXPECT_EQ(meet_server(with_token(), serve(without_token())), "it asks for no token, as with --no-token");
  const auto welcome = [](Verdict& verdict) { verdict[11] = std::byte{0}; };
  EXPECT_EQ(meet_server(with_token(), serve(with_token(kOtherDigits), welcome)),
            "its token is not the token of this job");
  EXPECT_EQ(meet_server(with_token(), serve(with_token(), [](Verdict& verdict) { verdict.back() ^= std::byte{1}; })),
            "its token is not the token of this job");
  EXPECT_EQ(meet_server(with_token(), serve(with_token(), [](Verdict& verdict) { verdict[8] = std::byte{7}; })),
            "it speaks version 7 of the protocol, this program version 1");
}

TEST(Handshake, IsNotWaitedForWithoutEnd) {
  const auto begin = Clock::now();
  const auto silent = [](int fd) {
    char byte = 0;
    while (recv(fd, &byte, 1, 0) > 0) {
    }
  };
  EXPECT_EQ(meet_server(with_token(), silent, 0.05), "it sent no challenge");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST(Handshake, WithoutATokenIsNotTriedWhereOneIsDemanded) {
  const auto message = message_of<ConfigError>([] { meet_server(without_token(), serve(with_token())); });
  EXPECT_NE(message.find("demands the job's token, and this one was started with --no-token"), std::string::npos);
  EXPECT_NE(message.find("--token-file"), std::string::npos);
}

}  // namespace handshake_test
}  // namespace orthant::launch
