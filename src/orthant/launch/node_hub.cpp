#include "orthant/launch/node_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/launch/node_place.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant::launch {
namespace {

constexpr std::size_t kMostVisitors = 256;
constexpr double kHelloSeconds = 10;      // a member that has not introduced itself by then is sent away
constexpr double kGoodbyeSeconds = 0.25;  // for the last line to arrive

// A cluster may make the name of its first host known only after that host runs, so a name without an address is asked
// for again until the timeout.
std::string address_to_serve(const NodeOptions& options) {
  const auto deadline = Clock::now() + seconds(options.timeout_seconds);
  for (;;) {
    try {
      return serving_address(options.rendezvous.host);
    } catch (const ConfigError&) {
      if (Clock::now() > deadline) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

Fd listen_for_nodes(const NodeOptions& options) {
  Fd listener(options.listen_fd);
  if (!listener) {
    const auto address = options.bind.empty() ? address_to_serve(options) : options.bind;
    listener = bind_tcp({address, options.rendezvous.port});
  }
  start_listening(listener.get());
  return listener;
}

}  // namespace

NodeHub::NodeHub(const NodeOptions& options)
    : options_(options),
      doorman_(listen_for_nodes(options), options.membership, {Purpose::kNode, Purpose::kStore},
               fmt::format("the launcher of node 0 at {}", endpoint_text(options.rendezvous)), options.say) {
  place_.master_address = options.rendezvous.host;
  place_.job = random_name();
}

NodeHub::~NodeHub() {
  for (auto& [node_rank, node] : nodes_) node.connection.finish_sending();
  const auto deadline = Clock::now() + seconds(kGoodbyeSeconds);
  for (auto& [node_rank, node] : nodes_) node.connection.wait_for_close(deadline);
}

ProgramJob NodeHub::take_job() {
  auto job = job_at(place_, options_, store_connections_);
  job.listen_fd = c10d_store_.release();
  return job;
}

void NodeHub::leave(const Outcome& outcome) {
  const auto over = over_of(outcome, 0);
  broadcast(over);
  for (auto& visitor : visitors_) {
    if (visitor.waiting) visitor.connection.send(over);
  }
}

void NodeHub::add_poll_fds(std::vector<pollfd>& fds) const {
  doorman_.add_poll_fds(fds);
  for (const auto& visitor : visitors_) {
    if (!visitor.connection.closed()) fds.push_back({visitor.connection.fd(), POLLIN, 0});
  }
  for (const auto& [node_rank, node] : nodes_) {
    if (!node.connection.closed()) fds.push_back({node.connection.fd(), POLLIN, 0});
  }
}

std::optional<Clock::time_point> NodeHub::next_deadline() const {
  auto next = doorman_.next_deadline();
  const auto at = [&next](Clock::time_point time) { next = next ? std::min(*next, time) : time; };
  for (const auto& visitor : visitors_) {
    if (!visitor.waiting) at(visitor.since + seconds(kHelloSeconds));
  }
  if (!in_attempt_ || failed_ || common_end_) return next;
  for (const auto& [node_rank, node] : nodes_) at(node.heartbeat.next());
  return next;
}

void NodeHub::service() {
  let_members_in();
  hear_visitors();
  hear_nodes();
  watch_hearts();
  let_waiting_in();
  regroup_for_waiting();
}

void NodeHub::let_members_in() {
  for (auto& [fd, purpose] : doorman_.service()) {
    if (purpose == Purpose::kStore) {
      if (!in_attempt_) store_connections_.push_back(std::move(fd));
      continue;
    }
    if (visitors_.size() >= kMostVisitors) visitors_.pop_front();
    visitors_.push_back({LineConnection(std::move(fd)), Clock::now()});
  }
  if (!in_attempt_) drop_lost_store_connections();
}

void NodeHub::hear_visitors() {
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    visitor = hear_visitor(*visitor) ? visitors_.erase(visitor) : std::next(visitor);
  }
}

// True when the visitor leaves the list.
bool NodeHub::hear_visitor(Visitor& visitor) {
  const auto line = visitor.connection.next_line();
  if (!line && visitor.connection.overlong()) {
    refuse(visitor.connection, fmt::format("a line longer than {} bytes", LineConnection::kLongestLine));
    return true;
  }
  if (visitor.waiting) return visitor.connection.closed() || line.has_value();  // it has nothing to say before
  if (!line) return visitor.connection.closed() || Clock::now() - visitor.since >= seconds(kHelloSeconds);
  try {
    const auto message = parse_line(*line);
    if (!std::holds_alternative<Hello>(message)) throw ConfigError("the first message must be a hello");
    const auto& hello = std::get<Hello>(message);
    if (const auto reason = refusal_of(hello); !reason.empty()) throw ConfigError(reason);
    if (must_wait(hello)) {
      visitor.waiting = hello;
      return false;
    }
    admit(std::move(visitor.connection), hello);
  } catch (const ConfigError& error) {
    refuse(visitor.connection, error.message());
  }
  return true;
}

void NodeHub::refuse(LineConnection& connection, const std::string& reason) {
  connection.send(Refusal{reason});
  connection.finish_sending();
}

void NodeHub::hear_nodes() {
  std::vector<int> gone;
  for (auto& [node_rank, node] : nodes_) {
    do {
      const auto line = node.connection.next_line();
      if (!line) break;
      node.heartbeat.heard(Clock::now());
      handle(node_rank, node, *line);
    } while (node.connection.has_line());
    if (node.connection.closed()) gone.push_back(node_rank);
  }
  for (const int node_rank : gone) lose(node_rank, "its launcher is gone");
}

// What a node says about an attempt comes before its hello for the next one; in the meeting it is too late for that.
void NodeHub::handle(int node_rank, Node& node, const std::string& line) {
  try {
    const auto message = parse_line(line);
    if (const auto* hello = std::get_if<Hello>(&message)) hear_hello(node_rank, node, *hello);
    if (const auto* over = std::get_if<Over>(&message)) hear_over(*over);
    if (!in_attempt_ && !node.is_ready) return;
    if (const auto* failure = std::get_if<Failure>(&message)) note_failure(as_told_by(node_rank, *failure));
    if (const auto* end = std::get_if<End>(&message)) {
      node.end = end->exit_code;
      end_if_all_ended();
    }
  } catch (const ConfigError& error) {
    note_failure({node_rank, -1, kPeerLostExitCode, fmt::format("node {}: {}", node_rank, error.message())});
  }
}

void NodeHub::hear_hello(int node_rank, Node& node, const Hello& hello) {
  if (node.is_ready || hello.node_rank != node_rank || hello.num_ranks < 1 || hello.num_ranks > kMostRanksPerNode) {
    throw ConfigError("a hello out of place");
  }
  node.is_ready = true;
  node.num_ranks = hello.num_ranks;
  if (!in_attempt_) welcome(node);
}

// A node that comes to no further meeting was told to stop, or its ranks met what no restart mends.
void NodeHub::hear_over(const Over& over) {
  if (!over_) over_ = Outcome{over.exit_code == 0 ? kPeerLostExitCode : over.exit_code, -1, over.reason};
}

// A node speaks for itself and its own ranks only.
Failure NodeHub::as_told_by(int node_rank, Failure failure) const {
  failure.node = node_rank;
  const auto& node = nodes_.at(node_rank);
  if (!in_attempt_ || failure.rank < node.first_rank || failure.rank >= node.first_rank + node.num_ranks)
    failure.rank = -1;
  return failure;
}

void NodeHub::watch_hearts() {
  if (!in_attempt_ || failed_ || common_end_) return;
  const auto now = Clock::now();
  std::vector<std::pair<int, std::string>> silent;
  for (auto& [node_rank, node] : nodes_) {
    if (node.heartbeat.is_due(now)) node.connection.send(Alive{});
    if (auto silence = node.heartbeat.silence(now)) silent.emplace_back(node_rank, std::move(*silence));
  }
  for (const auto& [node_rank, silence] : silent) lose(node_rank, silence);
}

// Its launcher may be started again, or come back.
void NodeHub::lose(int node_rank, const std::string& how) {
  nodes_.erase(node_rank);
  if (!in_attempt_ || common_end_) return;
  note_failure({node_rank, -1, kPeerLostExitCode, fmt::format("node {}: {}", node_rank, how)});
}

void NodeHub::note_failure(Failure failure) {
  if (failed_) return;
  announce_failure(failure);
  failure_ = seen_elsewhere(std::move(failure));
}

void NodeHub::announce_failure(const Failure& failure) {
  if (failed_) return;
  failed_ = true;
  broadcast(failure);
}

void NodeHub::announce_end(int exit_code) {
  own_end_ = exit_code;
  end_if_all_ended();
}

void NodeHub::broadcast(const Message& message) {
  for (auto& [node_rank, node] : nodes_) node.connection.send(message);
}

void NodeHub::end_if_all_ended() {
  if (!own_end_ || failed_) return;
  bool stopped = *own_end_ != 0;
  for (const auto& [node_rank, node] : nodes_) {
    if (!node.end) return;
    stopped |= *node.end != 0;
  }
  common_end_ = stopped ? kStoppedExitCode : 0;
  broadcast(End{*common_end_});
}

}  // namespace orthant::launch
