#include "orthant/serve/api/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/files/whole_file.h"
#include "orthant/launch/sockets.h"

namespace orthant {
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

bool is_public(std::string_view path) {
  return path == "/" || path == "/health";
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

ApiKeys ApiKeys::load(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
    throw ConfigError(fmt::format("--api-key-file {}: others can read it (mode {:04o})", path, status.st_mode & 07777),
                      {.remedy = fmt::format("chmod 600 {}", path)});
  }
  std::string text;
  try {
    text = read_text_file(path, 1 << 20);
  } catch (const DataError& error) {
    throw ConfigError("--api-key-file: " + error.message(), {.remedy = error.remedy()});
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
      throw ConfigError(fmt::format("--api-key-file {}: a key has fewer than {} characters, or others than letters, "
                                    "digits and signs",
                                    path, kShortestKey),
                        {.remedy = "make one with: openssl rand -hex 24"});
    }
    keys.digests_.push_back(digest_of(line));
  }
  if (keys.empty()) {
    throw ConfigError(fmt::format("--api-key-file {} holds no key", path), {.remedy = "write one on each line"});
  }
  return keys;
}

bool ApiKeys::holds(std::string_view key) const {
  const auto digest = digest_of(key);
  bool found = false;
  for (const auto& known : digests_) found = equal_digests(known, digest) || found;
  return found;
}

void check_listening(const std::string& host, const ApiKeys& keys) {
  if (names_loopback(launch::resolve(host)) || !keys.empty()) return;
  throw ConfigError(
      fmt::format("--host {} without --api-key-file: whoever reaches this address could use the model", host),
      {.remedy = "add --api-key-file FILE, or leave --host out to serve this machine only"});
}

std::optional<ApiError> refuse_access(const AccessRules& rules, const http::Request& request) {
  if (const auto* host = request.header("host"); host && rules.loopback) {
    const std::string name(host_name(*host));
    if (!names_loopback(name) && name != rules.host) {
      return ApiError(403, "the header Host names another machine: call this server localhost or 127.0.0.1");
    }
  }
  if (rules.keys.empty() || is_public(request.path)) return std::nullopt;
  const auto* given = request.header("authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (!given)
    return ApiError(401, "an API key is missing: send the header Authorization: Bearer KEY", {}, "missing_api_key");
  if (given->starts_with(kScheme) && rules.keys.holds(std::string_view(*given).substr(kScheme.size())))
    return std::nullopt;
  return ApiError(401, "the API key is not known here", {}, "invalid_api_key");
}

}  // namespace orthant
