// Who may ask: keys, and the names by which a server that listens on loopback may be called, so that a page of
// somebody else cannot reach it through the user's browser.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/sha256.h"
#include "orthant/http/message.h"
#include "orthant/http/request_parser.h"

namespace orthant::http {

class ApiKeys {
 public:
  ApiKeys() = default;

  // One key on each line, at least 16 characters without spaces; a file that only its owner may read. ConfigError that
  // never shows a key; `option` named the file.
  static ApiKeys load(const std::string& path, const std::string& option = "--api-key-file");

  bool empty() const { return digests_.empty(); }
  // In a time that does not depend on how much of a key was right.
  bool holds(std::string_view key) const;

 private:
  std::vector<Sha256Digest> digests_;
};

// Of a numeric address or the name localhost. Local.
bool names_loopback(std::string name);

struct AccessRules {
  ApiKeys keys = {};
  bool loopback = true;   // it listens there: the header Host must name this very machine
  std::string host = {};  // what it was told to listen on, which is a name for it, too
  std::function<bool(const std::string& path)> asks_no_key = {};  // empty: a key is asked for everywhere
};

// What a command was told of who may ask its server.
struct AccessOptions {
  std::string host;           // to listen on
  std::string key_file = {};  // empty: no key is asked for
  const char* could = "";     // what strangers could do then: "use the model"
  const char* host_option = "--host";
  const char* key_option = "--api-key-file";
};

// ConfigError for an address that others reach where no key is asked for, and for a file that protects nothing. May
// block in the resolver.
AccessRules access_rules(const AccessOptions& options);

// Nothing: the request may go on. A key comes as Authorization: Bearer KEY, or as the password that a browser asks its
// user for.
std::optional<Refusal> refuse_access(const AccessRules& rules, const Request& request);

}  // namespace orthant::http
