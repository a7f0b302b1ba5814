#include "orthant/launch/node_hub.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <thread>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

constexpr std::size_t kMostVisitors = 256;
constexpr double kHelloSeconds = 10;      // a visitor that has not introduced itself by then is sent away
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

NodeHub::NodeHub(const NodeOptions& options) : options_(options), listener_(listen_for_nodes(options)) {
  num_ranks_[0] = options.num_ranks;
  store_ = bind_tcp({bound_endpoint(listener_.get()).host, options.store_port});
  start_listening(store_.get());
  place_.master_address = options.rendezvous.host;
  place_.master_port = bound_endpoint(store_.get()).port;
  wait_for_all();
  start();
}

NodeHub::~NodeHub() {
  for (auto& [node_rank, connection] : nodes_) connection.finish_sending();
  const auto deadline = Clock::now() + seconds(kGoodbyeSeconds);
  for (auto& [node_rank, connection] : nodes_) connection.wait_for_close(deadline);
}

ProgramJob NodeHub::take_job() {
  ProgramJob job;
  job.world_size = place_.world_size;
  job.num_nodes = options_.num_nodes;
  job.master_address = place_.master_address;
  job.master_port = place_.master_port;
  job.listen_fd = store_.release();
  job.run_id = options_.run_id;
  job.restart_count = options_.restart_count;
  job.max_restarts = options_.max_restarts;
  return job;
}

void NodeHub::wait_for_all() {
  const auto deadline = Clock::now() + seconds(options_.timeout_seconds);
  while (!missing().empty()) {
    std::vector<pollfd> fds;
    add_poll_fds(fds);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      const auto reason = fmt::format("node 0 waited {} s, but of {} nodes these never arrived: {}",
                                      options_.timeout_seconds, options_.num_nodes, fmt::join(missing(), ", "));
      broadcast(Failure{0, -1, kPeerLostExitCode, reason});
      throw CommError(reason,
                      {.remedy = fmt::format("start orthant launch on them with --rendezvous {} and their --node_rank",
                                             endpoint_text(options_.rendezvous))});
    }
    poll(fds.data(), fds.size(), static_cast<int>(std::min<long long>(left, 1000)));
    service();
  }
}

void NodeHub::start() {
  place_.world_size = 0;
  for (const auto& [node_rank, num_ranks] : num_ranks_) place_.world_size += num_ranks;
  started_ = true;
  Place place = place_;
  for (const auto& [node_rank, num_ranks] : num_ranks_) {
    if (node_rank != 0) nodes_.at(node_rank).send(place);
    place.rank_offset += num_ranks;
  }
}

std::set<int> NodeHub::missing() const {
  std::set<int> missing;
  for (int node_rank = 1; node_rank < options_.num_nodes; ++node_rank) {
    if (!nodes_.contains(node_rank)) missing.insert(node_rank);
  }
  return missing;
}

void NodeHub::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const auto& visitor : visitors_) fds.push_back({visitor.connection.fd(), POLLIN, 0});
  for (const auto& [node_rank, connection] : nodes_) {
    if (!connection.closed()) fds.push_back({connection.fd(), POLLIN, 0});
  }
}

void NodeHub::service() {
  accept_visitors();
  hear_visitors();
  hear_nodes();
}

void NodeHub::accept_visitors() {
  for (;;) {
    pollfd ready{listener_.get(), POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0) return;
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (visitors_.size() >= kMostVisitors) visitors_.pop_front();
    visitors_.push_back({LineConnection(std::move(fd)), Clock::now()});
  }
}

void NodeHub::hear_visitors() {
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    const auto line = visitor->connection.next_line();
    bool leaves = true;
    if (line) {
      try {
        const auto message = parse_line(*line);
        if (!std::holds_alternative<Hello>(message)) throw ConfigError("the first message must be a hello");
        admit(*visitor, std::get<Hello>(message));
      } catch (const ConfigError& error) {
        refuse(visitor->connection, error.message());
      }
    } else if (visitor->connection.overlong()) {
      refuse(visitor->connection, fmt::format("a line longer than {} bytes", LineConnection::kLongestLine));
    } else {
      leaves = visitor->connection.closed() || Clock::now() - visitor->since > seconds(kHelloSeconds);
    }
    visitor = leaves ? visitors_.erase(visitor) : std::next(visitor);
  }
}

void NodeHub::admit(Visitor& visitor, const Hello& hello) {
  const int node = hello.node_rank;
  std::string reason;
  if (hello.run_id != options_.run_id) {
    reason = fmt::format("node {} belongs to job '{}', this is job '{}'", node, hello.run_id, options_.run_id);
  } else if (hello.num_nodes != options_.num_nodes) {
    reason = fmt::format("node {} expects {} nodes, node 0 expects {}", node, hello.num_nodes, options_.num_nodes);
  } else if (node < 1 || node >= options_.num_nodes) {
    reason = fmt::format("node rank {} is not between 1 and {}", node, options_.num_nodes - 1);
  } else if (hello.num_ranks < 1 || hello.num_ranks > 65536) {
    reason = fmt::format("node {} announces {} ranks", node, hello.num_ranks);
  } else if (nodes_.contains(node)) {
    reason = fmt::format("there is already a node {}: two launchers have the same --node_rank", node);
  }
  if (!reason.empty()) return refuse(visitor.connection, reason);
  num_ranks_[node] = hello.num_ranks;
  nodes_.emplace(node, std::move(visitor.connection));
}

void NodeHub::refuse(LineConnection& connection, const std::string& reason) {
  connection.send(Refusal{reason});
  connection.finish_sending();
}

void NodeHub::hear_nodes() {
  std::vector<int> lost;
  for (auto& [node_rank, connection] : nodes_) {
    while (const auto line = connection.next_line()) handle(node_rank, *line);
    if (connection.closed()) lost.push_back(node_rank);
  }
  for (const int node_rank : lost) lose(node_rank);
}

void NodeHub::handle(int node_rank, const std::string& line) {
  try {
    const auto message = parse_line(line);
    if (const auto* failure = std::get_if<Failure>(&message)) {
      note_failure(*failure);
    } else if (const auto* end = std::get_if<End>(&message)) {
      ended_[node_rank] = end->exit_code;
      end_if_all_ended();
    }
  } catch (const ConfigError& error) {
    note_failure({node_rank, -1, kPeerLostExitCode, fmt::format("node {}: {}", node_rank, error.message())});
  }
}

void NodeHub::lose(int node_rank) {
  if (!started_) {  // its launcher may be started again
    nodes_.erase(node_rank);
    num_ranks_.erase(node_rank);
    ended_.erase(node_rank);
  } else if (!common_end_) {
    note_failure({node_rank, -1, kPeerLostExitCode, fmt::format("node {}: its launcher is gone", node_rank)});
  }
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
  ended_[0] = exit_code;
  end_if_all_ended();
}

void NodeHub::broadcast(const Message& message) {
  for (auto& [node_rank, connection] : nodes_) connection.send(message);
}

void NodeHub::end_if_all_ended() {
  if (static_cast<int>(ended_.size()) < options_.num_nodes || failed_) return;
  const bool stopped = std::any_of(ended_.begin(), ended_.end(), [](const auto& end) { return end.second != 0; });
  common_end_ = stopped ? kStoppedExitCode : 0;
  broadcast(End{*common_end_});
}

}  // namespace orthant::launch
