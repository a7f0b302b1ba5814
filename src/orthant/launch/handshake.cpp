#include "orthant/launch/handshake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

constexpr char kMagic[] = "orthant";  // 8 bytes with the zero at its end
constexpr std::size_t kMagicBytes = sizeof kMagic;
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kVersionAt = 8, kModeAt = 9, kPurposeAt = 10, kVerdictAt = 11;
static_assert(kMagicBytes == kVersionAt && kVerdictAt + 1 == kHeadBytes);

enum class Mode : std::uint8_t { kToken = 1, kOpen = 2 };
enum class Role : std::uint8_t { kClient = 1, kServer = 2 };
constexpr std::uint8_t kAccepted = 0, kWrongDoor = 2;  // all else: unwelcome
constexpr Purpose kAnyPurpose{};

Mode mode_of(const Membership& membership) {
  return membership.open ? Mode::kOpen : Mode::kToken;
}

void write_head(std::byte* frame, const Membership& membership, Purpose purpose, std::uint8_t last) {
  std::memcpy(frame, kMagic, kMagicBytes);
  frame[kVersionAt] = std::byte{kVersion};
  frame[kModeAt] = static_cast<std::byte>(mode_of(membership));
  frame[kPurposeAt] = static_cast<std::byte>(purpose);
  frame[kVerdictAt] = std::byte{last};
}

Nonce nonce_at(const std::byte* bytes) {
  Nonce nonce;
  std::memcpy(nonce.data(), bytes, nonce.size());
  return nonce;
}

Sha256Digest digest_at(const std::byte* bytes) {
  Sha256Digest digest;
  std::memcpy(digest.data(), bytes, digest.size());
  return digest;
}

Sha256Digest proof(const Membership& membership, Role role, Purpose purpose, const Nonce& server, const Nonce& client) {
  if (membership.open) return {};
  std::array<std::byte, kMagicBytes + 3 + 2 * kNonceBytes> message;
  std::memcpy(message.data(), kMagic, kMagicBytes);
  message[kMagicBytes] = std::byte{kVersion};
  message[kMagicBytes + 1] = static_cast<std::byte>(role);
  message[kMagicBytes + 2] = static_cast<std::byte>(purpose);
  std::memcpy(message.data() + kMagicBytes + 3, server.data(), kNonceBytes);
  std::memcpy(message.data() + kMagicBytes + 3 + kNonceBytes, client.data(), kNonceBytes);
  return membership.token->sign(message);
}

// False when the other side left or the deadline passed.
bool receive_all(int fd, std::span<std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    if (!wait_until(fd, POLLIN, deadline)) return false;
    const auto got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

// What is wrong with the head of a frame that the server sent; empty when nothing is.
std::string problem_of_head(std::span<const std::byte> frame, const Membership& membership) {
  if (std::memcmp(frame.data(), kMagic, kMagicBytes) != 0) return "it is not a program of orthant";
  if (frame[kVersionAt] != std::byte{kVersion}) {
    return fmt::format("it speaks version {} of the protocol, this program version {}",
                       std::to_integer<int>(frame[kVersionAt]), kVersion);
  }
  if (frame[kModeAt] != static_cast<std::byte>(mode_of(membership))) {
    return membership.open ? "it demands the job's token" : "it asks for no token, as with --no-token";
  }
  return "";
}

}  // namespace

Nonce fresh_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

ServerHandshake::ServerHandshake(const Membership& membership, std::span<const Purpose> purposes)
    : membership_(membership), purposes_(purposes) {
  write_head(challenge_.data(), membership, kAnyPurpose, 0);
  const auto nonce = fresh_nonce();
  std::memcpy(challenge_.data() + kHeadBytes, nonce.data(), nonce.size());
}

ServerHandshake::State ServerHandshake::take(std::span<const std::byte> bytes) {
  const auto taken = std::min(bytes.size(), wanted());
  if (state_ != State::kWaiting || taken == 0) return state_;
  std::memcpy(answer_.data() + filled_, bytes.data(), taken);
  filled_ += taken;
  // Whoever speaks another language is known by the first bytes, and need not be waited for.
  if (std::memcmp(answer_.data(), kMagic, std::min(filled_, kMagicBytes)) != 0) {
    refuse("what it sent is no answer to the challenge");
  } else if (filled_ == kAnswerBytes) {
    judge();
  }
  return state_;
}

void ServerHandshake::judge() {
  if (answer_[kVersionAt] != std::byte{kVersion}) return refuse("it speaks another version of the protocol");
  if (answer_[kModeAt] != static_cast<std::byte>(mode_of(membership_))) {
    return refuse(membership_.open ? "it has a token, and this job was started with --no-token" : "it has no token");
  }
  purpose_ = static_cast<Purpose>(answer_[kPurposeAt]);
  if (std::find(purposes_.begin(), purposes_.end(), purpose_) == purposes_.end()) {
    refusal_ = kWrongDoor;
    return refuse("it came for something that is not served here");
  }
  const auto server = nonce_at(challenge_.data() + kHeadBytes);
  const auto client = nonce_at(answer_.data() + kHeadBytes);
  const auto expected = proof(membership_, Role::kClient, purpose_, server, client);
  if (!equal_digests(expected, digest_at(answer_.data() + kHeadBytes + kNonceBytes))) {
    return refuse("its token is not the token of this job");
  }
  state_ = State::kProved;
}

void ServerHandshake::refuse(const std::string& reason) {
  state_ = State::kRefused;
  reason_ = reason;
}

Verdict ServerHandshake::verdict() const {
  Verdict verdict{};
  const bool welcome = state_ == State::kProved;
  write_head(verdict.data(), membership_, purpose_, welcome ? kAccepted : refusal_);
  if (!welcome) return verdict;
  const auto own = proof(membership_, Role::kServer, purpose_, nonce_at(challenge_.data() + kHeadBytes),
                         nonce_at(answer_.data() + kHeadBytes));
  std::memcpy(verdict.data() + kHeadBytes, own.data(), own.size());
  return verdict;
}

Answer answer_to(const Challenge& challenge, const Membership& membership, Purpose purpose, const Nonce& nonce) {
  Answer answer{};
  write_head(answer.data(), membership, purpose, 0);
  std::memcpy(answer.data() + kHeadBytes, nonce.data(), nonce.size());
  const auto own = proof(membership, Role::kClient, purpose, nonce_at(challenge.data() + kHeadBytes), nonce);
  std::memcpy(answer.data() + kHeadBytes + kNonceBytes, own.data(), own.size());
  return answer;
}

std::optional<std::string> prove_membership(int fd, const Membership& membership, Purpose purpose,
                                            Clock::time_point deadline) {
  watch_peer(fd);
  deadline = std::min(deadline, Clock::now() + seconds(kProofSeconds));
  Challenge challenge;
  if (!receive_all(fd, challenge, deadline)) return kNoChallenge;
  auto problem = problem_of_head(challenge, membership);
  if (membership.open && challenge[kModeAt] == static_cast<std::byte>(Mode::kToken) && !problem.empty()) {
    throw ConfigError("the other side demands the job's token, and this one was started with --no-token",
                      {.remedy = "give the job's token by --token-file or ORTHANT_TOKEN"});
  }
  if (!problem.empty()) return problem;
  const auto nonce = fresh_nonce();
  const auto answer = answer_to(challenge, membership, purpose, nonce);
  if (send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(answer.size())) return "it left";
  Verdict verdict;
  if (!receive_all(fd, verdict, deadline)) return "it left without a proof that it has the job's token";
  problem = problem_of_head(verdict, membership);
  if (!problem.empty()) return problem;
  if (verdict[kVerdictAt] == std::byte{kWrongDoor}) return "it serves another purpose";
  if (verdict[kVerdictAt] != std::byte{kAccepted}) return "it did not accept this side's token";
  const auto expected = proof(membership, Role::kServer, purpose, nonce_at(challenge.data() + kHeadBytes), nonce);
  if (!equal_digests(expected, digest_at(verdict.data() + kHeadBytes))) return "its token is not the token of this job";
  return std::nullopt;
}

}  // namespace orthant::launch
