#include "orthant/launch/node_protocol.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

using nlohmann::json;

json as_json(const Hello& hello) {
  return {{"hello", "orthant"},           {"version", kNodeProtocolVersion}, {"node_rank", hello.node_rank},
          {"num_nodes", hello.num_nodes}, {"num_ranks", hello.num_ranks},    {"run_id", hello.run_id}};
}

json as_json(const Place& place) {
  return {{"world_size", place.world_size},
          {"rank_offset", place.rank_offset},
          {"master_address", place.master_address},
          {"master_port", place.master_port}};
}

json as_json(const Refusal& refusal) {
  return {{"refused", refusal.reason}};
}

json as_json(const Failure& failure) {
  return {{"failed", failure.text}, {"node", failure.node}, {"rank", failure.rank}, {"exit_code", failure.exit_code}};
}

json as_json(const End& end) {
  return {{"end", end.exit_code}};
}

Message from_json(const json& object) {
  if (object.contains("hello")) {
    if (const int version = object.at("version"); version != kNodeProtocolVersion) {
      throw ConfigError(
          fmt::format("the launchers speak different versions ({} and {})", kNodeProtocolVersion, version),
          {.remedy = "use the same orthant on every node"});
    }
    return Hello{object.at("node_rank"), object.at("num_nodes"), object.at("num_ranks"), object.at("run_id")};
  }
  if (object.contains("world_size")) {
    return Place{object.at("world_size"), object.at("rank_offset"), object.at("master_address"),
                 object.at("master_port")};
  }
  if (object.contains("refused")) return Refusal{object.at("refused")};
  if (object.contains("failed")) {
    return Failure{object.at("node"), object.at("rank"), object.at("exit_code"), object.at("failed")};
  }
  return End{object.at("end")};
}

// A host that loses power sends nothing more: only probes find out.
void enable_probes(int fd) {
  const int on = 1, idle_seconds = 5, interval_seconds = 5, probes = 3;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string to_line(const Message& message) {
  const json object = std::visit([](const auto& one) { return as_json(one); }, message);
  return object.dump(-1, ' ', true, json::error_handler_t::replace);
}

Message parse_line(std::string_view line) {
  const auto object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw ConfigError("not a launcher of orthant: its first line is no JSON object");
  try {
    return from_json(object);
  } catch (const json::exception& error) {
    throw ConfigError(fmt::format("not a message of orthant's launcher: {}", error.what()));
  }
}

LineConnection::LineConnection(Fd fd) : fd_(std::move(fd)) {
  enable_probes(fd_.get());
}

std::optional<std::string> LineConnection::next_line() {
  if (lines_.empty()) receive();
  if (lines_.empty()) return std::nullopt;
  auto line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

void LineConnection::receive() {
  char buffer[kLongestLine];
  while (!closed_) {
    const auto got = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      closed_ = true;
      break;
    }
    rest_.append(buffer, got);
    for (auto newline = rest_.find('\n'); newline != std::string::npos; newline = rest_.find('\n')) {
      lines_.push_back(rest_.substr(0, newline));
      rest_.erase(0, newline + 1);
    }
    if (rest_.size() > kLongestLine) closed_ = overlong_ = true;
  }
}

void LineConnection::send(const Message& message) {
  if (closed_ && !overlong_) return;
  const auto line = to_line(message) + "\n";
  const auto sent = ::send(fd_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(line.size())) closed_ = true;
}

void LineConnection::finish_sending() {
  shutdown(fd_.get(), SHUT_WR);
}

void LineConnection::wait_for_close(Clock::time_point deadline) {
  for (char buffer[kLongestLine];;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{fd_.get(), POLLIN, 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return;
    if (recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace orthant::launch
