#include "orthant/http/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>

#include "orthant/base/base64.h"
#include "orthant/base/error.h"
#include "orthant/files/whole_file.h"
#include "orthant/launch/sockets.h"

namespace orthant::http {
namespace {

constexpr std::size_t kShortestKey = 16;

Sha256Digest digest_of(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.digest();
}

// "localhost:8000" and "[::1]:8000" without the port.
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']')).substr(1);
  return host.substr(0, host.rfind(':'));
}

// The key in the header Authorization: "Bearer KEY", or base64 of "NAME:KEY" behind "Basic".
std::optional<std::string> key_in(std::string_view given) {
  constexpr std::string_view kBearer = "Bearer ", kBasic = "Basic ";
  if (given.starts_with(kBearer)) return std::string(given.substr(kBearer.size()));
  if (!given.starts_with(kBasic)) return std::nullopt;
  const auto text = bytes_of_base64(given.substr(kBasic.size()));
  const auto colon = text ? text->find(':') : std::string::npos;
  if (colon == std::string::npos) return std::nullopt;
  return text->substr(colon + 1);
}

}  // namespace

// By its letters alone: a name that only begins like an address is somebody's, and would be resolved by the browser.
bool names_loopback(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, name.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  if (inet_pton(AF_INET6, name.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six) != 0;
  return name == "localhost";
}

ApiKeys ApiKeys::load(const std::string& path, const std::string& option) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
    throw ConfigError(fmt::format("{} {}: others can read it (mode {:04o})", option, path, status.st_mode & 07777),
                      {.remedy = fmt::format("chmod 600 {}", path)});
  }
  std::string text;
  try {
    text = read_text_file(path, 1 << 20);
  } catch (const DataError& error) {
    throw ConfigError(option + ": " + error.message(), {.remedy = error.remedy()});
  }
  ApiKeys keys;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const bool plain = std::ranges::all_of(line, [](char c) { return c > 0x20 && c < 0x7f; });
    if (!plain || line.size() < kShortestKey) {
      throw ConfigError(
          fmt::format("{} {}: a key has fewer than {} characters, or others than letters, digits and signs", option,
                      path, kShortestKey),
          {.remedy = "make one with: openssl rand -hex 24"});
    }
    keys.digests_.push_back(digest_of(line));
  }
  if (keys.empty()) {
    throw ConfigError(fmt::format("{} {} holds no key", option, path), {.remedy = "write one on each line"});
  }
  return keys;
}

bool ApiKeys::holds(std::string_view key) const {
  const auto digest = digest_of(key);
  bool found = false;
  for (const auto& known : digests_) found = equal_digests(known, digest) || found;
  return found;
}

AccessRules access_rules(const AccessOptions& options) {
  AccessRules rules{.keys = options.key_file.empty() ? ApiKeys() : ApiKeys::load(options.key_file, options.key_option),
                    .loopback = names_loopback(launch::resolve(options.host)),
                    .host = options.host};
  if (rules.loopback || !rules.keys.empty()) return rules;
  throw ConfigError(fmt::format("{} {} without {}: whoever reaches this address could {}", options.host_option,
                                options.host, options.key_option, options.could),
                    {.remedy = fmt::format("add {} FILE, or leave {} out to serve this machine only",
                                           options.key_option, options.host_option)});
}

std::optional<Refusal> refuse_access(const AccessRules& rules, const Request& request) {
  if (const auto* host = request.header("host"); host && rules.loopback) {
    const std::string name(host_name(*host));
    if (!names_loopback(name) && name != rules.host) {
      return Refusal{403, "the header Host names another machine: call this server localhost or 127.0.0.1"};
    }
  }
  if (rules.keys.empty() || (rules.asks_no_key && rules.asks_no_key(request.path))) return std::nullopt;
  const auto* given = request.header("authorization");
  if (!given)
    return Refusal{401, "an API key is missing: send the header Authorization: Bearer KEY", "missing_api_key"};
  const auto key = key_in(*given);
  if (key && rules.keys.holds(*key)) return std::nullopt;
  return Refusal{401, "the API key is not known here", "invalid_api_key"};
}

}  // namespace orthant::http
