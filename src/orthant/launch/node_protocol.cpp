#include "orthant/launch/node_protocol.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"

namespace orthant::launch {
namespace {

using nlohmann::json;

json as_json(const Hello& hello) {
  return {{"hello", "orthant"},
          {"version", kNodeProtocolVersion},
          {"node_rank", hello.node_rank},
          {"num_nodes", hello.num_nodes},
          {"num_ranks", hello.num_ranks},
          {"run_id", bounded_text(hello.run_id)},
          {"max_restarts", hello.max_restarts},
          {"min_nodes", hello.min_nodes}};
}

json as_json(const Welcome&) {
  return {{"welcome", true}};
}

json as_json(const Place& place) {
  return {
      {"world_size", place.world_size},   {"rank_offset", place.rank_offset}, {"master_address", place.master_address},
      {"master_port", place.master_port}, {"num_nodes", place.num_nodes},     {"node_index", place.node_index},
      {"attempt", place.attempt},         {"job", bounded_text(place.job)}};
}

json as_json(const Refusal& refusal) {
  return {{"refused", bounded_text(refusal.reason)}};
}

json as_json(const Failure& failure) {
  return {{"failed", bounded_text(failure.text)},
          {"node", failure.node},
          {"rank", failure.rank},
          {"exit_code", failure.exit_code}};
}

json as_json(const End& end) {
  return {{"end", end.exit_code}};
}

json as_json(const Alive&) {
  return {{"alive", true}};
}

json as_json(const Regroup&) {
  return {{"regroup", true}};
}

json as_json(const Over& over) {
  return {{"over", bounded_text(over.reason)}, {"exit_code", over.exit_code}};
}

// A whole number from `least` to `most`; ConfigError otherwise.
int number_of(const json& object, const char* key, int least, int most) {
  const auto found = object.find(key);
  const bool whole = found != object.end() && found->is_number_integer();
  // Beyond 64 bits nlohmann makes a floating-point number of it, which is none of these.
  const bool fits = whole && (found->is_number_unsigned() ? found->get<std::uint64_t>() <= INT_MAX
                                                          : found->get<std::int64_t>() >= INT_MIN);
  const int value = fits ? found->get<int>() : 0;
  if (!fits || value < least || value > most) {
    throw ConfigError(
        fmt::format("not a message of orthant's launcher: {} is not a number from {} to {}", key, least, most));
  }
  return value;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    throw ConfigError(fmt::format("not a message of orthant's launcher: {} is not a text", key));
  }
  return bounded_text(found->get<std::string>());
}

Hello hello_of(const json& object) {
  if (const int version = number_of(object, "version", 0, INT_MAX); version != kNodeProtocolVersion) {
    throw ConfigError(fmt::format("the launchers speak different versions ({} and {})", kNodeProtocolVersion, version),
                      {.remedy = "use the same orthant on every node"});
  }
  return {number_of(object, "node_rank", INT_MIN, INT_MAX), number_of(object, "num_nodes", INT_MIN, INT_MAX),
          number_of(object, "num_ranks", INT_MIN, INT_MAX), text_of(object, "run_id"),
          number_of(object, "max_restarts", 0, INT_MAX),    number_of(object, "min_nodes", 1, kMostNodes)};
}

Place place_of(const json& object) {
  return {number_of(object, "world_size", 1, kMostRanks),
          number_of(object, "rank_offset", 0, kMostRanks),
          text_of(object, "master_address"),
          number_of(object, "master_port", 0, 65535),
          number_of(object, "num_nodes", 1, kMostNodes),
          number_of(object, "node_index", 0, kMostNodes - 1),
          number_of(object, "attempt", 0, kMostAttempts),
          text_of(object, "job")};
}

Failure failure_of(const json& object) {
  return {number_of(object, "node", 0, kMostNodes - 1), number_of(object, "rank", -1, kMostRanks),
          number_of(object, "exit_code", 1, 255), text_of(object, "failed")};
}

End end_of(const json& object) {
  const int code = number_of(object, "end", 0, kStoppedExitCode);
  if (code != 0 && code != kStoppedExitCode) {
    throw ConfigError(fmt::format("not a message of orthant's launcher: an end with exit code {}", code));
  }
  return {code};
}

Message from_json(const json& object) {
  if (object.contains("hello")) return hello_of(object);
  if (object.contains("welcome")) return Welcome{};
  if (object.contains("world_size")) return place_of(object);
  if (object.contains("refused")) return Refusal{text_of(object, "refused")};
  if (object.contains("failed")) return failure_of(object);
  if (object.contains("alive")) return Alive{};
  if (object.contains("regroup")) return Regroup{};
  if (object.contains("over")) return Over{number_of(object, "exit_code", 0, 255), text_of(object, "over")};
  return end_of(object);
}

}  // namespace

Over over_of(const Outcome& outcome, int node_rank) {
  if (outcome.exit_code == 0) return {0, "the job has ended without this host"};
  if (may_restart(outcome)) return {outcome.exit_code, fmt::format("node {} starts no further attempt", node_rank)};
  const auto headline = outcome.report.substr(0, outcome.report.find('\n'));
  return {outcome.exit_code, fmt::format("node {}: {}", node_rank, headline)};
}

std::string bounded_text(std::string_view text) {
  return printable(text.substr(0, kLongestPeerText)).substr(0, kLongestPeerText);
}

std::string to_line(const Message& message) {
  const json object = std::visit([](const auto& one) { return as_json(one); }, message);
  return object.dump(-1, ' ', true, json::error_handler_t::replace);
}

Message parse_line(std::string_view line) {
  const auto object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw ConfigError("not a message of orthant's launcher: no JSON object");
  return from_json(object);
}

LineConnection::LineConnection(Fd fd) : fd_(std::move(fd)) {
  watch_peer(fd_.get());
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
  while (!closed_ && lines_.size() < kMostLines) {
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
    if (!wait_until(fd_.get(), POLLIN, deadline)) return;
    if (recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace orthant::launch
