// How both ends of a connection prove that they belong to the job before either reads anything else: challenge and
// response with the job token. Frames have fixed sizes:
//   server: magic, version, mode, 0, 0, nonce
//   client: magic, version, mode, purpose, 0, its own nonce, and HMAC(token, client, purpose, both nonces)
//   server: magic, version, mode, purpose, verdict, and HMAC(token, server, purpose, both nonces)
// Nonces are fresh, so that nothing said before serves again; roles and purposes differ, so that no proof can be
// reflected or carried elsewhere. Without a token (--no-token, mode open) proofs are zeros, and both must say so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "orthant/launch/sockets.h"
#include "orthant/launch/token.h"

namespace orthant::launch {

// What a client wants: to be a node of the launchers' conversation, or a client of the ranks' store.
enum class Purpose : std::uint8_t { kNode = 1, kStore = 2 };

inline constexpr std::size_t kHeadBytes = 12;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kChallengeBytes = kHeadBytes + kNonceBytes;
inline constexpr std::size_t kAnswerBytes = kHeadBytes + kNonceBytes + sizeof(Sha256Digest);
inline constexpr std::size_t kVerdictBytes = kHeadBytes + sizeof(Sha256Digest);
inline constexpr double kProofSeconds = 5;  // for the whole handshake

using Nonce = std::array<std::byte, kNonceBytes>;
using Challenge = std::array<std::byte, kChallengeBytes>;
using Answer = std::array<std::byte, kAnswerBytes>;
using Verdict = std::array<std::byte, kVerdictBytes>;

// The server's side of one handshake, as a machine that is fed with bytes as they arrive.
class ServerHandshake {
 public:
  enum class State { kWaiting, kProved, kRefused };

  // Refuses clients that come for anything but these purposes.
  ServerHandshake(const Membership& membership, std::span<const Purpose> purposes);

  // To be sent first.
  const Challenge& challenge() const { return challenge_; }

  // At most so many bytes may be taken from the connection: what follows belongs to somebody else.
  std::size_t wanted() const { return kAnswerBytes - filled_; }

  // Returns the state after these bytes, at most wanted() many.
  State take(std::span<const std::byte> bytes);

  State state() const { return state_; }
  Purpose purpose() const { return purpose_; }  // of a client that has proved itself
  // Why the client was refused; one of a few fixed texts.
  const std::string& reason() const { return reason_; }
  // To be sent when the state is no longer kWaiting.
  Verdict verdict() const;

 private:
  void judge();
  void refuse(const std::string& reason);

  const Membership& membership_;
  std::span<const Purpose> purposes_;
  Purpose purpose_{};
  Challenge challenge_{};
  Answer answer_{};
  std::size_t filled_ = 0;
  State state_ = State::kWaiting;
  std::uint8_t refusal_ = 1;  // as the verdict says it
  std::string reason_;
};

// What prove_membership says of somebody who listens and does not speak.
inline constexpr const char* kNoChallenge = "it sent no challenge";

// The client's side, on a connected socket, blocking until the deadline and kProofSeconds at most. Nothing when both
// have proved themselves, else what went wrong; the connection is then of no use. ConfigError when this side has no
// token and the other demands one.
std::optional<std::string> prove_membership(int fd, const Membership& membership, Purpose purpose,
                                            Clock::time_point deadline);

// Parts of the client's side, for tests.
Answer answer_to(const Challenge& challenge, const Membership& membership, Purpose purpose, const Nonce& nonce);
Nonce fresh_nonce();

}  // namespace orthant::launch
