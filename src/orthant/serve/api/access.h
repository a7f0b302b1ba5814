// Who may ask: API keys, and the names by which a server that listens on loopback may be called, so that a page of
// somebody else cannot reach it through the user's browser.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orthant/base/sha256.h"
#include "orthant/serve/api/api_error.h"
#include "orthant/serve/http/message.h"

namespace orthant {

class ApiKeys {
 public:
  ApiKeys() = default;

  // One key on each line, at least 16 characters without spaces; a file that only its owner may read. ConfigError that
  // never shows a key.
  static ApiKeys load(const std::string& path);

  bool empty() const { return digests_.empty(); }
  // In a time that does not depend on how much of a key was right.
  bool holds(std::string_view key) const;

 private:
  std::vector<Sha256Digest> digests_;
};

// ConfigError for an address that others reach, where no key is asked for. May block in the resolver.
void check_listening(const std::string& host, const ApiKeys& keys);

// Of a numeric address or the name localhost. Local.
bool names_loopback(std::string name);

struct AccessRules {
  ApiKeys keys = {};
  bool loopback = true;   // it listens there: the header Host must name this very machine
  std::string host = {};  // what it was told to listen on, which is a name for it, too
};

// Nothing: the request may go on. The key is asked for everything but the page and /health.
std::optional<ApiError> refuse_access(const AccessRules& rules, const http::Request& request);

}  // namespace orthant
