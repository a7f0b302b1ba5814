#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "orthant/base/error.h"
#include "orthant/launch/node_hub.h"
#include "orthant/launch/restarts.h"

namespace orthant::launch {
namespace {

constexpr int kLongestPollMilliseconds = 1000;

}  // namespace

std::optional<Outcome> NodeHub::meet(SignalWatch& signals) {
  begin_meeting();
  const auto began = Clock::now();
  const auto deadline = began + seconds(options_.timeout_seconds);
  while (!over_ && !is_complete(began)) {
    if (left_until(deadline) <= 0) give_up_waiting();
    std::vector<pollfd> fds{{signals.fd(), POLLIN, 0}};
    add_poll_fds(fds);
    const auto enough = began + seconds(options_.regroup_seconds);
    const auto next = Clock::now() < enough ? std::min(enough, deadline) : deadline;
    poll(fds.data(), fds.size(), std::min(poll_milliseconds(next), kLongestPollMilliseconds));
    if (fds[0].revents != 0 && signals.asked_to_stop()) {
      over_ = num_meetings_ == 1 ? stopped_before_start() : stopped_between_attempts();
    }
    service();
  }
  if (over_) return over_;
  start();
  return std::nullopt;
}

void NodeHub::begin_meeting() {
  in_attempt_ = failed_ = false;
  ++num_meetings_;
  failure_.reset();
  common_end_.reset();
  own_end_.reset();
  regroup_asked_ = false;
  store_connections_.clear();
  if (options_.needs_c10d_store) {
    c10d_store_ = bind_tcp({bound_endpoint(doorman_.listener()).host, options_.store_port});
    start_listening(c10d_store_.get());
    place_.master_port = bound_endpoint(c10d_store_.get()).port;
  }
  std::erase_if(nodes_, [](const auto& node) { return node.second.connection.closed(); });
  for (auto& [node_rank, node] : nodes_) {
    if (node.is_ready) welcome(node);
  }
  let_waiting_in();
}

// Those who came while an attempt ran, or in the place of a node that had not been lost yet.
void NodeHub::let_waiting_in() {
  if (in_attempt_) return;
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    const bool enters = visitor->waiting && !must_wait(*visitor->waiting) && !visitor->connection.closed();
    if (enters) admit(std::move(visitor->connection), *visitor->waiting);
    visitor = enters ? visitors_.erase(visitor) : std::next(visitor);
  }
}

void NodeHub::welcome(Node& node) {
  node.end.reset();
  node.connection.send(Welcome{});
}

void NodeHub::give_up_waiting() {
  const auto late = missing();
  const auto reason =
      late.empty() ? fmt::format("node 0 waited {:.6g} s, but of {} ranks on other nodes only {} reached its store",
                                 options_.timeout_seconds, num_ranks() - options_.num_ranks, store_connections_.size())
                   : fmt::format("node 0 waited {:.6g} s, but of {} nodes these never arrived: {}{}",
                                 options_.timeout_seconds, options_.num_nodes, fmt::join(late, ", "),
                                 options_.min_nodes < options_.num_nodes
                                     ? fmt::format("; at least {} are needed", options_.min_nodes)
                                     : "");
  broadcast(Over{kPeerLostExitCode, reason});
  throw CommError(reason,
                  {.remedy = fmt::format("start orthant launch on them with --rendezvous {} and their --node-rank",
                                         endpoint_text(options_.rendezvous))});
}

void NodeHub::start() {
  drop_unready();
  place_.world_size = num_ranks();
  place_.num_nodes = 1 + static_cast<int>(nodes_.size());
  place_.attempt = num_meetings_ - 1;
  in_attempt_ = true;
  Place place = place_;
  place.rank_offset = options_.num_ranks;
  for (auto& [node_rank, node] : nodes_) {
    ++place.node_index;
    node.connection.send(place);
    node.first_rank = place.rank_offset;
    node.is_ready = false;
    node.heartbeat = Heartbeat(options_.timeout_seconds);
    place.rank_offset += node.num_ranks;
  }
}

int NodeHub::num_ranks() const {
  int total = options_.num_ranks;
  for (const auto& [node_rank, node] : nodes_) {
    if (node.is_ready) total += node.num_ranks;
  }
  return total;
}

std::set<int> NodeHub::missing() const {
  std::set<int> missing;
  for (int node_rank = 1; node_rank < options_.num_nodes; ++node_rank) {
    const auto found = nodes_.find(node_rank);
    if (found == nodes_.end() || !found->second.is_ready) missing.insert(node_rank);
  }
  return missing;
}

// A launcher that was started again before the job began has connected its ranks twice.
void NodeHub::drop_lost_store_connections() {
  std::erase_if(store_connections_, [](const Fd& fd) {
    char byte = 0;
    const auto got = recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);  // nobody speaks before its time
  });
}

bool NodeHub::is_complete(Clock::time_point began) const {
  const auto late = static_cast<int>(missing().size());
  const bool waited = Clock::now() >= began + seconds(options_.regroup_seconds);
  if (late > (waited ? options_.num_nodes - options_.min_nodes : 0)) return false;
  return static_cast<int>(store_connections_.size()) >= num_ranks() - options_.num_ranks;
}

// An attempt that goes on without some nodes is theirs no longer: they come to the next meeting anew.
void NodeHub::drop_unready() {
  std::erase_if(nodes_, [](const auto& node) { return !node.second.is_ready; });
}

// A node that the attempt lacks and that waits for the next one. The attempt ends at a checkpoint.
void NodeHub::regroup_for_waiting() {
  if (!in_attempt_ || failed_ || common_end_ || regroup_asked_) return;
  const auto is_new = [this](const Visitor& visitor) {
    return visitor.waiting && !visitor.connection.closed() && !nodes_.contains(visitor.waiting->node_rank);
  };
  if (std::ranges::none_of(visitors_, is_new)) return;
  regroup_asked_ = true;
  broadcast(Regroup{});
}

std::string NodeHub::refusal_of(const Hello& hello) const {
  const int node = hello.node_rank;
  if (const auto run_id = bounded_text(options_.run_id); hello.run_id != run_id) {
    return fmt::format("node {} belongs to job '{}', this is job '{}'", node, hello.run_id, run_id);
  }
  if (hello.num_nodes != options_.num_nodes) {
    return fmt::format("node {} expects {} nodes, node 0 expects {}", node, hello.num_nodes, options_.num_nodes);
  }
  if (hello.max_restarts != options_.max_restarts) {
    return fmt::format("node {} has --max-restarts {}, node 0 has {}", node, hello.max_restarts, options_.max_restarts);
  }
  if (hello.min_nodes != options_.min_nodes) {
    return fmt::format("node {} goes on with {} nodes at least, node 0 with {}", node, hello.min_nodes,
                       options_.min_nodes);
  }
  if (node < 1 || node >= options_.num_nodes) {
    return fmt::format("node rank {} is not between 1 and {}", node, options_.num_nodes - 1);
  }
  if (hello.num_ranks < 1 || hello.num_ranks > kMostRanksPerNode) {
    return fmt::format("node {} announces {} ranks", node, hello.num_ranks);
  }
  if (num_ranks() > kMostRanks - hello.num_ranks) {
    return fmt::format("with the {} ranks of node {} there would be more than {}", hello.num_ranks, node, kMostRanks);
  }
  const bool once = num_meetings_ == 1 && !in_attempt_;
  if (nodes_.contains(node) && (once || options_.max_restarts == 0)) {
    return fmt::format("there is already a node {}: two launchers have the same --node-rank", node);
  }
  return "";
}

// One that comes in the place of a node that is still there enters once that one is lost.
bool NodeHub::must_wait(const Hello& hello) const {
  return in_attempt_ || nodes_.contains(hello.node_rank);
}

void NodeHub::admit(LineConnection connection, const Hello& hello) {
  Node node{std::move(connection), Heartbeat(options_.timeout_seconds), hello.num_ranks};
  welcome(nodes_.emplace(hello.node_rank, std::move(node)).first->second);
}

}  // namespace orthant::launch
