#include "orthant/http/message.h"

#include <fmt/format.h>

#include <ctime>
#include <map>

namespace orthant::http {

const std::string* Request::header(std::string_view name) const {
  for (const auto& [known, value] : headers) {
    if (known == name) return &value;
  }
  return nullptr;
}

std::string_view reason_of(int status) {
  static const std::map<int, std::string_view> kReasons = {{100, "Continue"},
                                                           {200, "OK"},
                                                           {400, "Bad Request"},
                                                           {401, "Unauthorized"},
                                                           {403, "Forbidden"},
                                                           {404, "Not Found"},
                                                           {405, "Method Not Allowed"},
                                                           {408, "Request Timeout"},
                                                           {413, "Content Too Large"},
                                                           {414, "URI Too Long"},
                                                           {415, "Unsupported Media Type"},
                                                           {417, "Expectation Failed"},
                                                           {429, "Too Many Requests"},
                                                           {431, "Request Header Fields Too Large"},
                                                           {500, "Internal Server Error"},
                                                           {501, "Not Implemented"},
                                                           {503, "Service Unavailable"},
                                                           {505, "HTTP Version Not Supported"}};
  const auto found = kReasons.find(status);
  return found == kReasons.end() ? "Status" : found->second;
}

std::string head_of(const Answer& answer, long long length, bool keep_alive) {
  const auto now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char date[64];
  std::strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  auto head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", answer.status, reason_of(answer.status), date);
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += length < 0 ? "Transfer-Encoding: chunked\r\n" : fmt::format("Content-Length: {}\r\n", length);
  return head + (keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

std::string chunk_of(std::string_view part) {
  return part.empty() ? "0\r\n\r\n" : fmt::format("{:x}\r\n{}\r\n", part.size(), part);
}

}  // namespace orthant::http
