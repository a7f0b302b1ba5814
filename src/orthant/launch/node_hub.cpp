#include "orthant/launch/node_hub.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <thread>

#include <algorithm>

#include "orthant/base/error.h"

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
  num_ranks_[0] = options.num_ranks;
  const auto address = bound_endpoint(doorman_.listener()).host;
  if (options.needs_c10d_store) {
    c10d_store_ = bind_tcp({address, options.store_port});
    start_listening(c10d_store_.get());
    place_.master_port = bound_endpoint(c10d_store_.get()).port;
  }
  place_.master_address = options.rendezvous.host;
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
  job.listen_fd = c10d_store_.release();
  for (auto& connection : store_connections_) job.store_connections.push_back(connection.release());
  store_connections_.clear();
  job.run_id = options_.run_id;
  job.restart_count = options_.restart_count;
  job.max_restarts = options_.max_restarts;
  return job;
}

void NodeHub::wait_for_all() {
  const auto deadline = Clock::now() + seconds(options_.timeout_seconds);
  while (!is_complete()) {
    std::vector<pollfd> fds;
    add_poll_fds(fds);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      const auto late = missing();
      const auto reason =
          late.empty()
              ? fmt::format("node 0 waited {:.6g} s, but of {} ranks on other nodes only {} reached its store",
                            options_.timeout_seconds, num_ranks() - options_.num_ranks, store_connections_.size())
              : fmt::format("node 0 waited {:.6g} s, but of {} nodes these never arrived: {}", options_.timeout_seconds,
                            options_.num_nodes, fmt::join(late, ", "));
      broadcast(Failure{0, -1, kPeerLostExitCode, reason});
      throw CommError(reason,
                      {.remedy = fmt::format("start orthant launch on them with --rendezvous {} and their --node-rank",
                                             endpoint_text(options_.rendezvous))});
    }
    poll(fds.data(), fds.size(), static_cast<int>(std::min<long long>(left, 1000)));
    service();
  }
}

void NodeHub::start() {
  place_.world_size = num_ranks();
  started_ = true;
  Place place = place_;
  for (const auto& [node_rank, num_ranks] : num_ranks_) {
    if (node_rank != 0) nodes_.at(node_rank).send(place);
    place.rank_offset += num_ranks;
  }
}

int NodeHub::num_ranks() const {
  int total = 0;
  for (const auto& [node_rank, num_ranks] : num_ranks_) total += num_ranks;
  return total;
}

std::set<int> NodeHub::missing() const {
  std::set<int> missing;
  for (int node_rank = 1; node_rank < options_.num_nodes; ++node_rank) {
    if (!nodes_.contains(node_rank)) missing.insert(node_rank);
  }
  return missing;
}

void NodeHub::add_poll_fds(std::vector<pollfd>& fds) const {
  doorman_.add_poll_fds(fds);
  for (const auto& visitor : visitors_) fds.push_back({visitor.connection.fd(), POLLIN, 0});
  for (const auto& [node_rank, connection] : nodes_) {
    if (!connection.closed()) fds.push_back({connection.fd(), POLLIN, 0});
  }
}

std::optional<Clock::time_point> NodeHub::next_deadline() const {
  const auto proof = doorman_.next_deadline();
  if (visitors_.empty()) return proof;
  const auto hello = visitors_.front().since + seconds(kHelloSeconds);
  return proof ? std::min(*proof, hello) : hello;
}

void NodeHub::service() {
  let_members_in();
  hear_visitors();
  hear_nodes();
}

void NodeHub::let_members_in() {
  for (auto& [fd, purpose] : doorman_.service()) {
    if (purpose == Purpose::kStore) {
      if (!started_) store_connections_.push_back(std::move(fd));
      continue;
    }
    if (visitors_.size() >= kMostVisitors) visitors_.pop_front();
    visitors_.push_back({LineConnection(std::move(fd)), Clock::now()});
  }
  if (!started_) drop_lost_store_connections();
}

// A launcher that was started again before the job began has connected its ranks twice.
void NodeHub::drop_lost_store_connections() {
  std::erase_if(store_connections_, [](const Fd& fd) {
    char byte = 0;
    const auto got = recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);  // nobody speaks before its time
  });
}

bool NodeHub::is_complete() const {
  return missing().empty() && static_cast<int>(store_connections_.size()) >= num_ranks() - options_.num_ranks;
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
      leaves = visitor->connection.closed() || Clock::now() - visitor->since >= seconds(kHelloSeconds);
    }
    visitor = leaves ? visitors_.erase(visitor) : std::next(visitor);
  }
}

void NodeHub::admit(Visitor& visitor, const Hello& hello) {
  const int node = hello.node_rank;
  std::string reason;
  if (const auto run_id = bounded_text(options_.run_id); hello.run_id != run_id) {
    reason = fmt::format("node {} belongs to job '{}', this is job '{}'", node, hello.run_id, run_id);
  } else if (hello.num_nodes != options_.num_nodes) {
    reason = fmt::format("node {} expects {} nodes, node 0 expects {}", node, hello.num_nodes, options_.num_nodes);
  } else if (node < 1 || node >= options_.num_nodes) {
    reason = fmt::format("node rank {} is not between 1 and {}", node, options_.num_nodes - 1);
  } else if (hello.num_ranks < 1 || hello.num_ranks > kMostRanksPerNode) {
    reason = fmt::format("node {} announces {} ranks", node, hello.num_ranks);
  } else if (num_ranks() > kMostRanks - hello.num_ranks) {
    reason = fmt::format("with the {} ranks of node {} there would be more than {}", hello.num_ranks, node, kMostRanks);
  } else if (nodes_.contains(node)) {
    reason = fmt::format("there is already a node {}: two launchers have the same --node-rank", node);
  }
  if (!reason.empty()) return refuse(visitor.connection, reason);
  num_ranks_[node] = hello.num_ranks;
  nodes_.emplace(node, std::move(visitor.connection)).first->second.send(Welcome{});
}

void NodeHub::refuse(LineConnection& connection, const std::string& reason) {
  connection.send(Refusal{reason});
  connection.finish_sending();
}

void NodeHub::hear_nodes() {
  std::vector<int> lost;
  for (auto& [node_rank, connection] : nodes_) {
    do {
      if (const auto line = connection.next_line()) handle(node_rank, *line);
    } while (connection.has_line());
    if (connection.closed()) lost.push_back(node_rank);
  }
  for (const int node_rank : lost) lose(node_rank);
}

void NodeHub::handle(int node_rank, const std::string& line) {
  try {
    const auto message = parse_line(line);
    if (const auto* failure = std::get_if<Failure>(&message)) {
      note_failure(as_told_by(node_rank, *failure));
    } else if (const auto* end = std::get_if<End>(&message)) {
      ended_[node_rank] = end->exit_code;
      end_if_all_ended();
    }
  } catch (const ConfigError& error) {
    note_failure({node_rank, -1, kPeerLostExitCode, fmt::format("node {}: {}", node_rank, error.message())});
  }
}

// A node speaks for itself and its own ranks only.
Failure NodeHub::as_told_by(int node_rank, Failure failure) const {
  failure.node = node_rank;
  int first = 0;
  for (const auto& [node, num_ranks] : num_ranks_) {
    if (node < node_rank) first += num_ranks;
  }
  if (failure.rank < first || failure.rank >= first + num_ranks_.at(node_rank)) failure.rank = -1;
  return failure;
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
