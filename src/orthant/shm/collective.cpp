#include "orthant/shm/collective.h"

#include <fmt/format.h>

#include <algorithm>

namespace orthant::shm {
namespace {

const char* name_of(CollectiveRequest::Kind kind) {
  static constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                           "all_to_all", "broadcast",  "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

}  // namespace

// Of everything that must be the same on all members; the counts of an all_to_all are each pair's own affair.
uint64_t Collective::fingerprint() const {
  uint64_t hash = mixed(static_cast<uint64_t>(request_.kind), static_cast<uint64_t>(request_.dtype));
  hash = mixed(hash, static_cast<uint64_t>(request_.reduce));
  hash = mixed(hash, static_cast<uint64_t>(request_.root));
  hash = mixed(hash, static_cast<uint64_t>(request_.count));
  if (request_.kind == CollectiveRequest::Kind::all_to_all) return hash;
  for (const auto count : request_.input_counts) hash = mixed(hash, static_cast<uint64_t>(count));
  for (const auto count : request_.output_counts) hash = mixed(hash, static_cast<uint64_t>(count));
  return hash;
}

std::shared_ptr<Operation> CollectiveLine::start(CollectiveRequest request) {
  if (broken_) std::rethrow_exception(broken_);
  auto operation = make_collective(std::move(request), lanes_);
  queue_.push_back(operation);
  // A small call is posted, and often finished, right here; a large one gets a first chunk under way.
  for (int moves = 0; moves < 8 && !operation->is_done() && advance(); ++moves) {
  }
  return operation;
}

bool CollectiveLine::advance() {
  try {
    return move_on();
  } catch (const PeerFailure&) {
    fail(std::current_exception());
    return true;
  }
}

bool CollectiveLine::move_on() {
  if (queue_.empty() || !lanes_.connected()) return false;
  const auto operation = queue_.front();
  const uint64_t post_at = first_step_ + operation->posted;
  if (operation->posted < operation->num_steps && operation->posted < operation->consumed + operation->lookahead() &&
      lanes_.may_post(post_at)) {
    const uint64_t value = operation->fill(operation->posted, lanes_.own_slot(post_at));
    lanes_.post(post_at, {operation->fingerprint(), value});
    ++operation->posted;
    return true;
  }
  const uint64_t drain_at = first_step_ + operation->consumed;
  if (operation->consumed == operation->posted || !lanes_.all_posted(drain_at)) return false;
  check_headers(*operation, drain_at);
  if (!operation->drain(operation->consumed, drain_at)) return true;
  lanes_.consume(drain_at);
  if (++operation->consumed == operation->num_steps) {
    first_step_ += operation->num_steps;
    queue_.pop_front();
    operation->finish();
  }
  return true;
}

void CollectiveLine::check_headers(const Collective& operation, uint64_t at) const {
  const auto own = operation.fingerprint();
  for (int member = 0; member < lanes_.size(); ++member) {
    if (member == lanes_.index() || lanes_.header(member, at).fingerprint == own) continue;
    throw PeerFailure(lanes_.rank_of(member),
                      fmt::format("rank {} made another call than this {} (run with --check-collectives to see both)",
                                  lanes_.rank_of(member), name_of(operation.request().kind)));
  }
}

bool CollectiveLine::needs_nobody() const {
  if (queue_.empty()) return true;
  const auto& operation = *queue_.front();
  return queue_.size() == 1 && operation.posted == 1 && operation.single_step;
}

std::vector<int> CollectiveLine::awaited() const {
  if (queue_.empty()) return {};
  auto missing = lanes_.ranks_not_connected();
  if (!missing.empty()) return missing;
  const auto& operation = *queue_.front();
  if (operation.consumed < operation.posted) return lanes_.ranks_not_posted(first_step_ + operation.consumed);
  return lanes_.ranks_not_consumed(first_step_ + operation.posted);
}

void CollectiveLine::fail(std::exception_ptr error) {
  broken_ = error;
  for (const auto& operation : queue_) operation->finish(error);
  queue_.clear();
}

}  // namespace orthant::shm
