// Requests of HTTP from any bytes. The first byte says in how large pieces they come: what is read, or the refusal,
// must not depend on it. No request is larger than its limits, and none has two lengths.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "orthant/http/request_parser.h"

namespace {

using namespace orthant::http;

constexpr Limits kLimits{.line_bytes = 200, .header_bytes = 600, .num_headers = 12, .body_bytes = 2000};

void check(const Request& request) {
  if (request.body.size() > kLimits.body_bytes || request.headers.size() > kLimits.num_headers) std::abort();
  if (request.header("content-length") && request.header("transfer-encoding")) std::abort();
  if (!request.path.starts_with('/') && request.path != "*") std::abort();
  std::size_t bytes = 0;
  for (const auto& [name, value] : request.headers) {
    bytes += name.size() + value.size();
    const auto same = [&](const auto& other) { return other.first == name; };
    if (std::ranges::count_if(request.headers, same) != 1) std::abort();
    if ((name + value).find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) std::abort();
  }
  if (bytes > 2 * kLimits.header_bytes) std::abort();
}

// All that a connection's bytes come to, as one text.
std::string told(std::string_view bytes, std::size_t piece) {
  RequestParser parser(kLimits);
  std::string all;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto part = bytes.substr(at, piece);
    const auto used = parser.feed(part);
    if (used > part.size()) std::abort();
    at += used;
    if (parser.refusal()) return all + std::to_string(parser.refusal()->status) + parser.refusal()->message;
    if (!parser.done()) {
      if (used != part.size()) std::abort();
      continue;
    }
    const auto request = parser.take();
    check(request);
    all += request.method + " " + request.path + "?" + request.query + (request.keep_alive ? "+" : "-");
    for (const auto& [name, value] : request.headers) all += name + ":" + value + "\n";
    all += request.body + "\n";
  }
  return all + (parser.begun() ? "begun" : "") + (parser.reads_body() ? "body" : "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (told(bytes, bytes.size() + 1) != told(bytes, 1 + data[0] % 64)) std::abort();
  return 0;
}
