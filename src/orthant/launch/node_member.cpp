#include "orthant/launch/node_member.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/launch/member_connection.h"
#include "orthant/launch/node_place.h"
#include "orthant/launch/restarts.h"

namespace orthant::launch {
namespace {

constexpr auto kJoinPause = std::chrono::milliseconds(50);
constexpr double kKnockSeconds = 1;  // then signals are looked for; a network that is back shows within that time

}  // namespace

NodeMember::NodeMember(const NodeOptions& options) : options_(options), heartbeat_(options.timeout_seconds) {}

std::optional<Outcome> NodeMember::meet(SignalWatch& signals) {
  const auto deadline = Clock::now() + seconds(options_.timeout_seconds);
  begin_meeting();
  while (!over_) {
    store_connections_.clear();
    if (!connection_ && !connect(signals, deadline)) break;
    connection_->send(Hello{options_.node_rank, options_.num_nodes, options_.num_ranks, options_.run_id,
                            options_.max_restarts, options_.min_nodes});
    if (await_place(signals, deadline)) return std::nullopt;
    if (over_) break;
    connection_.reset();  // it broke
    std::this_thread::sleep_for(kJoinPause);
  }
  return over_;
}

void NodeMember::begin_meeting() {
  failure_.reset();
  common_end_.reset();
  regroup_asked_ = false;
  if (connection_ && connection_->closed()) connection_.reset();
}

// False when the job is over: a signal asked to stop.
bool NodeMember::connect(SignalWatch& signals, Clock::time_point deadline) {
  const auto say = [this](const std::string& text) { say_once(text); };
  for (;;) {
    const double patience = std::min(left_until(deadline), kKnockSeconds);
    try {
      connection_.emplace(
          connect_as_member(options_.rendezvous, options_.membership, Purpose::kNode, "node 0", patience, say));
      return true;
    } catch (const CommError& error) {
      if (left_until(deadline) <= 0) {
        throw CommError(fmt::format("node {} waited {:.6g} s for node 0: {}", options_.node_rank,
                                    options_.timeout_seconds, error.message()),
                        {.remedy = error.remedy()});
      }
    }
    if (stop_if_asked(signals)) return false;
  }
}

bool NodeMember::stop_if_asked(SignalWatch& signals) {
  if (!signals.asked_to_stop()) return false;
  over_ = has_met_ ? stopped_between_attempts() : stopped_before_start();
  return true;
}

void NodeMember::say_once(const std::string& text) {
  if (options_.say && said_.insert(text).second) options_.say(text);
}

// False when the connection broke, or the job is over.
bool NodeMember::await_place(SignalWatch& signals, Clock::time_point deadline) {
  bool is_welcome = false;
  while (!connection_->closed()) {
    const bool lacks_store = is_welcome && static_cast<int>(store_connections_.size()) < options_.num_ranks;
    std::vector<pollfd> fds{{connection_->fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    poll(fds.data(), fds.size(), lacks_store ? 0 : poll_milliseconds(deadline));
    if (fds[1].revents != 0 && stop_if_asked(signals)) return false;
    if (fds[0].revents == 0 && left_until(deadline) <= 0) {
      throw CommError(fmt::format("node {} reached node 0 at {}, but not all {} nodes had arrived after {:.6g} s",
                                  options_.node_rank, endpoint_text(options_.rendezvous), options_.num_nodes,
                                  options_.timeout_seconds),
                      {.remedy = "start orthant launch on every node, or raise --timeout"});
    }
    while (const auto line = connection_->next_line()) {
      const auto message = parse_line(*line);
      is_welcome |= std::holds_alternative<Welcome>(message);
      if (const auto* place = std::get_if<Place>(&message)) {
        take_place(*place);
        return true;
      }
      if (const auto* over = std::get_if<Over>(&message)) {
        over_ = Outcome{over->exit_code, -1, over->reason};
        return false;
      }
      if (const auto* refusal = std::get_if<Refusal>(&message)) throw_refusal(*refusal);
    }
    if (lacks_store && !connection_->closed()) add_store_connection(deadline);
  }
  return false;
}

void NodeMember::throw_refusal(const Refusal& refusal) const {
  throw ConfigError(fmt::format("node 0 at {} refused node {}: {}", endpoint_text(options_.rendezvous),
                                options_.node_rank, refusal.reason),
                    {.remedy = "give every node the same --nnodes and --max-restarts, and its own --node-rank"});
}

// For one more rank. Node 0 may leave meanwhile: whoever calls looks for its last word, and calls again.
void NodeMember::add_store_connection(Clock::time_point deadline) {
  const double patience = std::min(left_until(deadline), kKnockSeconds);
  try {
    store_connections_.push_back(connect_as_member(options_.rendezvous, options_.membership, Purpose::kStore, "node 0",
                                                   patience, [this](const std::string& text) { say_once(text); }));
  } catch (const CommError&) {
    if (left_until(deadline) <= 0) throw;
  }
}

void NodeMember::take_place(const Place& place) {
  if (place.rank_offset > place.world_size - options_.num_ranks) {
    throw CommError(fmt::format("node 0 gave node {} the ranks from {} in a world of {}", options_.node_rank,
                                place.rank_offset, place.world_size));
  }
  place_ = place;
  has_met_ = true;
  heartbeat_ = Heartbeat(options_.timeout_seconds);
}

ProgramJob NodeMember::take_job() {
  return job_at(place_, options_, store_connections_);
}

void NodeMember::leave(const Outcome& outcome) {
  if (connection_ && outcome.exit_code != 0) connection_->send(over_of(outcome, options_.node_rank));
}

void NodeMember::add_poll_fds(std::vector<pollfd>& fds) const {
  if (connection_ && !connection_->closed()) fds.push_back({connection_->fd(), POLLIN, 0});
}

std::optional<Clock::time_point> NodeMember::next_deadline() const {
  if (failure_ || common_end_) return std::nullopt;
  return heartbeat_.next();
}

void NodeMember::service() {
  if (!connection_) return;
  do {
    const auto line = connection_->next_line();
    if (!line) break;
    heartbeat_.heard(Clock::now());
    hear(*line);
  } while (connection_->has_line());
  if (heartbeat_.is_due(Clock::now())) connection_->send(Alive{});
  if (failure_ || common_end_) return;
  if (connection_->closed()) {
    failure_ = Failure{0, -1, kPeerLostExitCode, "node 0: its launcher is gone"};
  } else if (const auto silence = heartbeat_.silence(Clock::now())) {
    failure_ = Failure{0, -1, kPeerLostExitCode, "node 0: " + *silence};
    connection_.reset();
  }
}

void NodeMember::hear(const std::string& line) {
  try {
    const auto message = parse_line(line);
    if (const auto* failure = std::get_if<Failure>(&message); failure != nullptr && !failure_)
      failure_ = seen_elsewhere(*failure);
    if (std::holds_alternative<Regroup>(message)) regroup_asked_ = true;
    if (const auto* end = std::get_if<End>(&message)) common_end_ = end->exit_code;
    if (const auto* over = std::get_if<Over>(&message)) over_ = Outcome{over->exit_code, -1, over->reason};
  } catch (const ConfigError& error) {
    if (!failure_) failure_ = Failure{0, -1, kPeerLostExitCode, fmt::format("node 0: {}", error.message())};
  }
}

void NodeMember::announce_failure(const Failure& failure) {
  if (connection_) connection_->send(failure);
}

void NodeMember::announce_end(int exit_code) {
  if (connection_) connection_->send(End{exit_code});
}

}  // namespace orthant::launch
