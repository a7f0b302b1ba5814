#include "orthant/launch/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/launch/member_connection.h"
#include "orthant/launch/node_hub.h"
#include "orthant/launch/node_protocol.h"

namespace orthant::launch {
namespace {

// The side of every node but node 0.
class NodeMember final : public NodeLink {
 public:
  NodeMember(const NodeOptions& options, LineConnection connection, std::vector<Fd> store_connections, Place place)
      : options_(options),
        connection_(std::move(connection)),
        store_connections_(std::move(store_connections)),
        place_(std::move(place)) {}

  ProgramJob take_job() override {
    ProgramJob job;
    job.rank_offset = place_.rank_offset;
    job.world_size = place_.world_size;
    job.node_rank = options_.node_rank;
    job.num_nodes = options_.num_nodes;
    job.master_address = place_.master_address;
    job.master_port = place_.master_port;
    for (auto& connection : store_connections_) job.store_connections.push_back(connection.release());
    store_connections_.clear();
    job.run_id = options_.run_id;
    job.restart_count = options_.restart_count;
    job.max_restarts = options_.max_restarts;
    return job;
  }

  void add_poll_fds(std::vector<pollfd>& fds) const override {
    if (!connection_.closed()) fds.push_back({connection_.fd(), POLLIN, 0});
  }

  void service() override {
    do {
      const auto line = connection_.next_line();
      if (!line) break;
      try {
        const auto message = parse_line(*line);
        if (const auto* failure = std::get_if<Failure>(&message); failure != nullptr && !failure_)
          failure_ = seen_elsewhere(*failure);
        if (const auto* end = std::get_if<End>(&message)) common_end_ = end->exit_code;
      } catch (const ConfigError& error) {
        if (!failure_) failure_ = Failure{0, -1, kPeerLostExitCode, fmt::format("node 0: {}", error.message())};
      }
    } while (connection_.has_line());
    if (connection_.closed() && !failure_ && !common_end_) {
      failure_ = Failure{0, -1, kPeerLostExitCode, "node 0: its launcher is gone"};
    }
  }

  const std::optional<Failure>& failure() const override { return failure_; }
  void announce_failure(const Failure& failure) override { connection_.send(failure); }
  void announce_end(int exit_code) override { connection_.send(End{exit_code}); }
  std::optional<int> common_end() const override { return common_end_; }

 private:
  NodeOptions options_;
  LineConnection connection_;
  std::vector<Fd> store_connections_;  // one for each rank of this node
  Place place_;
  std::optional<Failure> failure_;
  std::optional<int> common_end_;
};

constexpr auto kJoinPause = std::chrono::milliseconds(50);

Place checked(const Place& place, const NodeOptions& options) {
  if (place.rank_offset > place.world_size - options.num_ranks) {
    throw CommError(fmt::format("node 0 gave node {} the ranks from {} in a world of {}", options.node_rank,
                                place.rank_offset, place.world_size));
  }
  return place;
}

std::vector<Fd> connect_to_store(const NodeOptions& options, Clock::time_point deadline) {
  std::vector<Fd> connections;
  for (int i = 0; i < options.num_ranks; ++i) {
    connections.push_back(connect_as_member(options.rendezvous, options.membership, Purpose::kStore, "node 0",
                                            left_until(deadline), options.say));
  }
  return connections;
}

// The answer to our hello; nothing when the connection broke first. Connects the ranks to the store when we are
// welcome.
std::optional<Place> await_place(LineConnection& connection, const NodeOptions& options, Clock::time_point deadline,
                                 std::vector<Fd>& store_connections) {
  while (!connection.closed()) {
    if (!wait_until(connection.fd(), POLLIN, deadline)) {
      throw CommError(
          fmt::format("node {} reached node 0 at {}, but not all {} nodes had arrived after {:.6g} s",
                      options.node_rank, endpoint_text(options.rendezvous), options.num_nodes, options.timeout_seconds),
          {.remedy = "start orthant launch on every node, or raise --timeout"});
    }
    while (const auto line = connection.next_line()) {
      const auto message = parse_line(*line);
      if (std::holds_alternative<Welcome>(message)) store_connections = connect_to_store(options, deadline);
      if (const auto* place = std::get_if<Place>(&message)) return checked(*place, options);
      if (const auto* failure = std::get_if<Failure>(&message)) throw CommError(failure->text);
      if (const auto* refusal = std::get_if<Refusal>(&message)) {
        throw ConfigError(fmt::format("node 0 at {} refused node {}: {}", endpoint_text(options.rendezvous),
                                      options.node_rank, refusal->reason),
                          {.remedy = "give every node the same --nnodes and its own --node-rank"});
      }
    }
  }
  return std::nullopt;
}

void check(const NodeOptions& options) {
  if (options.num_nodes < 1 || options.node_rank < 0 || options.node_rank >= options.num_nodes) {
    throw ConfigError(fmt::format("node rank {} of {} nodes is impossible", options.node_rank, options.num_nodes),
                      {.remedy = "--node-rank counts from 0 and stays below --nnodes"});
  }
  if (options.rendezvous.port == 0 && options.num_nodes > 1) {
    throw ConfigError(fmt::format("{} nodes cannot meet at port 0", options.num_nodes),
                      {.remedy = "give --rendezvous HOST:PORT with a free port of node 0's host"});
  }
  const auto& membership = options.membership;
  if (options.num_nodes > 1 && !membership.token && !membership.open) {
    find_membership({}, fmt::format("{} nodes", options.num_nodes));  // throws with the remedy
  }
}

}  // namespace

std::unique_ptr<NodeLink> join_nodes(const NodeOptions& options) {
  Fd listener(options.listen_fd);
  check(options);
  listener.release();  // the hub takes it over
  if (options.node_rank == 0) return std::make_unique<NodeHub>(options);
  const auto deadline = Clock::now() + seconds(options.timeout_seconds);
  for (;;) {
    LineConnection connection(connect_as_member(options.rendezvous, options.membership, Purpose::kNode, "node 0",
                                                left_until(deadline), options.say));
    connection.send(Hello{options.node_rank, options.num_nodes, options.num_ranks, options.run_id});
    std::vector<Fd> store_connections;
    if (auto place = await_place(connection, options, deadline, store_connections)) {
      return std::make_unique<NodeMember>(options, std::move(connection), std::move(store_connections),
                                          std::move(*place));
    }
    std::this_thread::sleep_for(kJoinPause);
  }
}

}  // namespace orthant::launch
