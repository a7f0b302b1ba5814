#include "orthant/comm/call_failure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <thread>

#include "orthant/comm/store_impl.h"
#include "orthant/comm/transport.h"

namespace orthant::comm {
namespace {

// A call has failed, and whoever serves the store may be gone, too, without a word (a cut cable): so long it is waited
// for from then on.
constexpr double kHastySeconds = 3;

std::string key_of(const ChannelMembers& members, const CallWords& call, int rank) {
  return fmt::format("failed/{}/{}/{}", call.line, call.sequence, rank);
}

// Every member that fails in a call says so in the store; whoever does not within a second never came or is dead.
std::vector<int> missing_members(const ChannelMembers& members, const std::optional<Store>& store,
                                 const CallWords& call) {
  std::vector<int> candidates;
  for (size_t i = 0; i < members.ranks.size(); ++i) {
    const bool other_end = call.peer < 0 || static_cast<int>(i) == call.peer;
    if (static_cast<int>(i) != members.index && other_end) candidates.push_back(members.ranks[i]);
  }
  if (!store) return candidates;
  announce_failure(members, store, call);
  try {
    auto asked = *store;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!candidates.empty() && std::chrono::steady_clock::now() < deadline) {
      std::erase_if(candidates, [&](int rank) { return asked.has(key_of(members, call, rank)); });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (const std::exception&) {
    // The store went with its server: all others remain suspects.
  }
  return candidates;
}

}  // namespace

CallWords words_of(const Call& call, int index) {
  return {.what = describe(call),
          .subjects = describe_subjects(call),
          .line = call.line(index),
          .sequence = call.sequence,
          .peer = call.is_point_to_point() ? call.peer : -1,
          .site = call.site};
}

void announce_failure(const ChannelMembers& members, const std::optional<Store>& store, const CallWords& call) {
  if (!store) return;
  try {
    auto told = *store;
    if (told.impl().client) told.impl().client->hasten(kHastySeconds);
    told.set(key_of(members, call, members.own_rank()), "1");
  } catch (const std::exception&) {
    // The store went with its server.
  }
}

CommError call_failure(const ChannelMembers& members, const std::optional<Store>& store, const CallWords& call,
                       const std::exception& error, double waited_seconds, double timeout_seconds) {
  const std::string text = error.what();
  const auto* known = dynamic_cast<const PeerFailure*>(&error);
  const auto missing = known != nullptr ? known->peers() : missing_members(members, store, call);
  const std::string peers = missing.empty() ? "unknown" : fmt::format("rank {}", fmt::join(missing, ", rank "));
  return CommError(
      fmt::format("{} on group {} [{}] for {}{} failed after {:.1f} s (timeout {:.6g} s), peer: {}, called at {}: {}",
                  call.what, members.name, fmt::join(members.ranks, ", "), name_of(members.purpose), call.subjects,
                  waited_seconds, timeout_seconds, peers, short_location(call.site), text.substr(0, text.find('\n'))),
      {.remedy = "see the log of that rank; raise --timeout when it is only slow", .rank = members.own_rank()},
      call.site);
}

void NoticedFailure::set(const CommError& error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
}

void NoticedFailure::throw_if_set() const {
  std::lock_guard lock(mutex_);
  if (!error_) return;
  told_ = true;
  throw CommError(*error_);
}

bool NoticedFailure::was_told() const {
  std::lock_guard lock(mutex_);
  return told_;
}

}  // namespace orthant::comm
