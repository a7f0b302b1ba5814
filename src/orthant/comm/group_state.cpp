#include "orthant/comm/group_state.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"

namespace orthant::comm {

GroupState::GroupState(Members members, std::unique_ptr<Transport> transport, std::optional<Store> store,
                       double timeout_seconds)
    : members_(std::move(members)),
      store_(std::move(store)),
      timeout_seconds_(timeout_seconds),
      transport_(std::move(transport)) {}

std::unique_ptr<Pending> GroupState::start(Call& call) {
  throw_if_dropped();
  if (!transport_) {
    throw ConfigError(fmt::format("{} on group {} at {} after the communicator was closed", name_of(call.op),
                                  members_.name, short_location(call.site)),
                      {.remedy = "close the communicator after the last call", .rank = own_rank()}, call.site);
  }
  validate(call, static_cast<int>(members_.ranks.size()), members_.index);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;  // communication is no part of any graph
  call.sequence = sequences_[call.line(members_.index)]++;
  auto& entry = counters_.entries[static_cast<size_t>(call.op)];
  entry.calls += 1;
  entry.bytes += payload_bytes(call);
  try {
    auto pending = transport_->start(call);
    ++num_open_;
    return pending;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;  // nobody else is to blame
    fail(call, error, 0.0);
  }
}

// Every member that fails in a call says so in the store; whoever does not within a second never came or is dead.
std::vector<int> GroupState::missing_members(const Call& call) {
  std::vector<int> candidates;
  for (size_t i = 0; i < members_.ranks.size(); ++i) {
    const bool other_end = !call.is_point_to_point() || static_cast<int>(i) == call.peer;
    if (static_cast<int>(i) != members_.index && other_end) candidates.push_back(members_.ranks[i]);
  }
  if (!store_) return candidates;
  const auto key = [&](int rank) {
    return fmt::format("failed/{}/{}/{}", call.line(members_.index), call.sequence, rank);
  };
  try {
    store_->set(key(own_rank()), "1");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!candidates.empty() && std::chrono::steady_clock::now() < deadline) {
      std::erase_if(candidates, [&](int rank) { return store_->has(key(rank)); });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (const std::exception&) {
    // The store went with its server: all others remain suspects.
  }
  return candidates;
}

void GroupState::fail(const Call& call, const std::exception& error, double waited_seconds) {
  const std::string text = error.what();
  const auto* known = dynamic_cast<const PeerFailure*>(&error);
  const auto missing = known != nullptr ? known->peers() : missing_members(call);
  const std::string peers = missing.empty() ? "unknown" : fmt::format("rank {}", fmt::join(missing, ", rank "));
  throw CommError(
      fmt::format("{} on group {} [{}] for {}{} failed after {:.1f} s (timeout {:.6g} s), peer: {}, called at {}: {}",
                  describe(call), members_.name, fmt::join(members_.ranks, ", "), name_of(members_.purpose),
                  describe_subjects(call), waited_seconds, timeout_seconds_, peers, short_location(call.site),
                  text.substr(0, text.find('\n'))),
      {.remedy = "see the log of that rank; raise --timeout when it is only slow", .rank = own_rank()}, call.site);
}

void GroupState::set_timeout(double timeout_seconds) {
  timeout_seconds_ = timeout_seconds;
  if (transport_) transport_->set_timeout(timeout_seconds);
}

void GroupState::close() {
  transport_.reset();
  kept_.clear();
}

void GroupState::dropped(const Call& call, std::unique_ptr<Pending> pending) {
  std::lock_guard lock(dropped_mutex_);
  if (dropped_call_.empty()) dropped_call_ = fmt::format("{} at {}", describe(call), short_location(call.site));
  kept_.push_back(std::move(pending));
}

void GroupState::throw_if_dropped() {
  std::lock_guard lock(dropped_mutex_);
  if (dropped_call_.empty()) return;
  const auto call = std::exchange(dropped_call_, {});
  throw ConfigError(fmt::format("the Work of {} on group {} was destroyed without wait()", call, members_.name),
                    {.remedy = "keep every Work and wait for it", .rank = own_rank()});
}

}  // namespace orthant::comm
