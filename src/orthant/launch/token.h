// The token of a job on several hosts: 32 random bytes that all members hold and nobody else. It proves membership (see
// handshake.h) and is never sent, printed, passed in arguments or inherited by ranks.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "orthant/base/sha256.h"
#include "orthant/launch/secret.h"

namespace orthant::launch {

inline constexpr const char* kTokenVariable = "ORTHANT_TOKEN";

class Token {
 public:
  static constexpr std::size_t kBytes = 32;
  static constexpr std::size_t kDigits = 2 * kBytes;

  // From the system's random numbers. May block while the system is starting.
  static Token random();

  // 64 hexadecimal digits, with white space after them at most. ConfigError that names `source` and never shows the
  // text. Local.
  static Token parse(std::string_view text, const std::string& source);

  // A regular file of this user that nobody else may read. ConfigError with what to do otherwise. Local.
  static Token read(const std::filesystem::path& path);

  // Writes the digits into a new file that only this user may read; ConfigError when there is such a file. Local.
  void write(const std::filesystem::path& path) const;

  // HMAC-SHA-256 of the message.
  Sha256Digest sign(std::span<const std::byte> message) const;

 private:
  Token() : secret_(std::make_unique<Secret>(kBytes)) {}

  std::unique_ptr<Secret> secret_;
};

// Where a process may find the token: what the command line says, else the variable.
struct TokenSource {
  std::shared_ptr<const Secret> variable = {};  // ORTHANT_TOKEN, taken by take_variable
  std::string file = {};                        // --token-file
  bool none = false;                            // --no-token
};

// How the members of a job know each other: by a token, or, when the user says so, not at all.
struct Membership {
  std::shared_ptr<const Token> token = {};
  bool open = false;  // --no-token: whoever connects is believed
};

// ConfigError when the command line contradicts itself. Local.
void check_token_source(const TokenSource& source);

// What is said on stderr of a job that everybody may join at `where`. Local.
std::string open_job_text(const std::string& where);

// ConfigError with how to make a token when there is neither a token nor --no-token; `what` says what needs it ("2
// hosts"). Local.
Membership find_membership(const TokenSource& source, const std::string& what);

}  // namespace orthant::launch
