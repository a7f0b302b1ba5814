#include "orthant/comm/host_socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/comm/store_impl.h"
#include "orthant/launch/meeting.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant::comm {
namespace {

constexpr std::string_view kPrefix = "orthant-host-";
constexpr size_t kDigits = 32;

// Whether the text can only be a name that HostSocket::serve() made.
bool is_host_name(const std::string& text) {
  if (text.size() != kPrefix.size() + kDigits || !text.starts_with(kPrefix)) return false;
  return std::all_of(text.begin() + kPrefix.size(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// A job of this host's ranks alone, numbered among themselves, as a meeting has it.
launch::Job job_of_host(const std::vector<int>& ranks, int rank) {
  launch::Job job;
  job.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  job.world_size = job.local_world_size = static_cast<int>(ranks.size());
  return job;
}

std::shared_ptr<launch::FdExchange> over(std::shared_ptr<launch::JoinedStore> joined) {
  return {joined, joined->client.get()};
}

}  // namespace

HostSocket::HostSocket(Store store, const std::vector<int>& ranks, int rank, double timeout_seconds)
    : store_(std::move(store)), ranks_(ranks), rank_(rank), timeout_seconds_(timeout_seconds) {
  rank_ == ranks_.front() ? serve() : enter();
}

std::string HostSocket::key(const char* what, int rank) const {
  return fmt::format("host-socket/{}/{}/{}", ranks_.front(), what, rank);
}

void HostSocket::serve() {
  const auto name = std::string(kPrefix) + launch::random_name();
  launch::Fd listener = launch::listen_unix(name);  // passes to the server
  if (!listener) throw CommError(fmt::format("no socket at {}: {}", name, std::strerror(errno)), {.rank = rank_});
  auto job = job_of_host(ranks_, rank_);
  job.rendezvous.listen_fd = listener.release();
  descriptors_ = over(launch::serve_orthant_store(job));
  store_.set(key("name", rank_), name);
}

void HostSocket::enter() {
  const ErrorDetails details{.remedy = "see who else writes into the job's store", .rank = rank_};
  const int first = ranks_.front();
  const auto deadline = launch::Clock::now() + launch::seconds(timeout_seconds_);
  const auto name = store_.get(key("name", first), timeout_seconds_);
  if (!is_host_name(name)) {
    throw CommError(fmt::format("the store says '{}' where rank {} should have named its socket",
                                printable(name.substr(0, 80)), first),
                    details);
  }
  launch::Fd fd = launch::connect_unix_until(name, deadline);
  const auto peer = fd ? launch::peer_of(fd.get()) : std::nullopt;
  if (!launch::is_own_user(peer)) {
    const auto who = peer ? fmt::format("process {} of user {}", peer->pid, peer->uid) : "nobody";
    throw CommError(fmt::format("the store says that rank {} listens at '{}', but {} does", first, name, who), details);
  }
  auto joined = std::make_shared<launch::JoinedStore>();
  auto connection = launch::enter_meeting_over(std::move(fd), job_of_host(ranks_, rank_), launch::left_until(deadline));
  joined->client =
      std::make_shared<launch::StoreClient>(std::move(connection), fmt::format("served by rank {}", first));
  descriptors_ = over(std::move(joined));
}

void HostSocket::wait_until_all_have_used_it() {
  if (rank_ != ranks_.front()) return store_.set(key("used", rank_), "1");
  const auto deadline = launch::Clock::now() + launch::seconds(timeout_seconds_);
  for (size_t i = 1; i < ranks_.size(); ++i) store_.get(key("used", ranks_[i]), launch::left_until(deadline));
}

}  // namespace orthant::comm
