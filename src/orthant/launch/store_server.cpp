#include "orthant/launch/store_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"

namespace orthant::launch {
namespace {

constexpr auto kSayAgain = std::chrono::seconds(60);
constexpr int64_t kMostMilliseconds = int64_t{1} << 40;
constexpr const char* kNoDescriptorLeft = "no descriptor is left where the store is served (see ulimit -n)";

bool takes_keys(StoreCommand command) {
  return command == StoreCommand::get || command == StoreCommand::wait || command == StoreCommand::get_fd;
}

}  // namespace

StoreServer::StoreServer(std::function<void(const std::string&)> say, const StoreLimits& limits)
    : limits_(limits), say_(std::move(say)), table_(limits), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw ConfigError(fmt::format("eventfd: {}", std::strerror(errno)), {.remedy = "see ulimit -n"});
}

StoreServer::~StoreServer() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void StoreServer::add(Fd connection, pid_t pid) {
  const auto id = next_id_++;
  connections_.emplace(id, Connection{StoreConnection(id, std::move(connection), pid, nullptr, limits_), nullptr});
}

void StoreServer::listen(Fd listener, Meet meet, std::function<bool()> is_complete,
                         std::optional<double> patience_seconds) {
  listeners_.push_back({std::move(listener), std::move(meet), std::move(is_complete), patience_seconds});
}

void StoreServer::listen(std::unique_ptr<Doorman> doorman) {
  doormen_.push_back(std::move(doorman));
}

void StoreServer::start() {
  // Signals are the business of the thread that started this one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void StoreServer::run() {
  for (;;) {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
    const auto now = Clock::now();
    for (const auto& listener : listeners_) {
      fds.push_back({now < listener.pause_until ? -1 : listener.fd.get(), POLLIN, 0});  // -1 is passed over
    }
    std::vector<uint64_t> ids;
    for (const auto& [id, connection] : connections_) {
      const short events = connection.link.wants_to_write() ? POLLIN | POLLOUT : POLLIN;
      fds.push_back({connection.link.fd(), events, 0});
      ids.push_back(id);
    }
    const size_t first = fds.size() - ids.size();
    for (const auto& doorman : doormen_) doorman->add_poll_fds(fds);
    poll(fds.data(), fds.size(), milliseconds_to_wait());
    if (fds[0].revents != 0) return;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto found = connections_.find(ids[i]);
      if (fds[first + i].revents != 0 && found != connections_.end()) serve(found->second);
    }
    size_t place = 1;
    for (auto& listener : listeners_) {
      if (fds[place++].revents != 0) accept_at(listener);
    }
    for (const auto& doorman : doormen_) {
      for (auto& member : doorman->service()) add(std::move(member.fd));
    }
    end_late_ones();
    sweep();
  }
}

int StoreServer::milliseconds_to_wait() const {
  auto next = Clock::time_point::max();
  for (const auto& [id, waiting] : waiting_) next = std::min(next, waiting.deadline);
  for (const auto& doorman : doormen_) next = std::min(next, doorman->next_deadline().value_or(next));
  for (const auto& [id, connection] : connections_) next = std::min(next, proof_deadline(connection).value_or(next));
  for (const auto& listener : listeners_) {
    if (Clock::now() < listener.pause_until) next = std::min(next, listener.pause_until);
  }
  return next == Clock::time_point::max() ? -1 : poll_milliseconds(next);
}

// By when a stranger must have proved itself; nothing for those who are waited for, and for members.
std::optional<Clock::time_point> StoreServer::proof_deadline(const Connection& connection) {
  if (connection.listener == nullptr || !connection.listener->patience_seconds) return std::nullopt;
  return connection.link.opened_at() + seconds(*connection.listener->patience_seconds);
}

void StoreServer::accept_at(Listener& listener) {
  for (int i = 0; i < kMostAcceptedAtOnce && listener.fd; ++i) {
    pollfd ready{listener.fd.get(), POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0 || !accept_one(listener)) return;
  }
}

// False when it cannot go on now.
bool StoreServer::accept_one(Listener& listener) {
  Fd fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    // Without a descriptor to spare the listener stays readable: the oldest stranger makes room.
    if (!lacks_descriptors(errno) || drop_oldest_stranger()) return true;
    listener.pause_until = Clock::now() + kNoDescriptorPause;
    return false;
  }
  std::string reason;
  auto admission = listener.meet(fd.get(), reason);
  if (admission == nullptr) return turned_away(peer_text(fd.get()), reason), true;
  const auto num_strangers =
      std::ranges::count_if(connections_, [](const auto& entry) { return proof_deadline(entry.second).has_value(); });
  if (static_cast<size_t>(num_strangers) >= limits_.num_strangers) drop_oldest_stranger();
  const auto id = next_id_++;
  StoreConnection link(id, std::move(fd), 0, std::move(admission), limits_);
  serve(connections_.emplace(id, Connection{std::move(link), &listener}).first->second);
  return true;
}

// False when there is none.
bool StoreServer::drop_oldest_stranger() {
  for (auto& [id, connection] : connections_) {
    if (!proof_deadline(connection)) continue;
    close(connection, "too many connections that prove nothing");
    sweep();
    return true;
  }
  return false;
}

bool StoreServer::admit(Connection& connection) {
  if (!connection.link.admit()) return false;
  if (auto* listener = std::exchange(connection.listener, nullptr)) {
    if (listener->is_complete && listener->is_complete()) listener->fd.reset();
  }
  return true;
}

void StoreServer::serve(Connection& connection) {
  auto& link = connection.link;
  try {
    const bool more = link.receive();
    if (admit(connection)) {
      while (!connection.closed) {
        const auto body = link.next_frame();
        if (!body) break;
        handle(link, *body);
      }
    }
    const bool is_stranger = connection.listener != nullptr;
    if (!link.flush() || !more) close(connection, is_stranger ? "it left without proving itself" : "");
  } catch (const BadFrame& bad) {
    close(connection, bad.what());
  } catch (const std::bad_alloc&) {
    close(connection, "there is no memory for what it asks");
  }
}

void StoreServer::handle(StoreConnection& link, std::string_view body) {
  FrameReader request(body);
  if (request.code() > kLastStoreCommand) throw BadFrame(fmt::format("command {}", request.code()));
  const auto command = static_cast<StoreCommand>(request.code());
  try {
    if (takes_keys(command)) return begin_waiting(link, request, command);
    link.send(answer(link, request, command));
  } catch (const StoreRefusal& refusal) {
    FrameWriter refused(request.id(), static_cast<uint8_t>(StoreStatus::refused));
    refused.text(refusal.what());
    link.send(refused.finish());
  }
}

std::string StoreServer::answer(StoreConnection& link, FrameReader& request, StoreCommand command) {
  FrameWriter answer(request.id(), static_cast<uint8_t>(StoreStatus::ok));
  if (command == StoreCommand::count) {
    request.expect_end();
    answer.number(static_cast<int64_t>(table_.num_keys()));
    return answer.finish();
  }
  if (command == StoreCommand::put_fd) {
    hand_in(link, request);
    return answer.finish();
  }
  if (command == StoreCommand::check || command == StoreCommand::multi_set) {
    bool all = true;
    while (!request.at_end()) {
      const std::string key(key_of(request));
      if (command == StoreCommand::check) {
        all = all && table_.find(key) != nullptr;
      } else {
        table_.set(key, request.text(limits_.value_bytes));
        arrived(key);
      }
    }
    answer.number(all ? 1 : 0);
    return answer.finish();
  }
  const std::string key(key_of(request));
  if (command == StoreCommand::erase) {
    request.expect_end();
    answer.number(table_.erase(key) ? 1 : 0);
    return answer.finish();
  }
  if (command == StoreCommand::add) {
    const auto value = request.number();
    request.expect_end();
    answer.number(table_.add(key, value));
  } else {
    const auto value = request.text(limits_.value_bytes);
    if (command == StoreCommand::compare_set) {
      const auto desired = request.text(limits_.value_bytes);
      request.expect_end();
      answer.text(table_.compare_set(key, value, desired));
    } else {
      request.expect_end();
      command == StoreCommand::set ? table_.set(key, value) : table_.append(key, value);
    }
  }
  arrived(key);
  return answer.finish();
}

void StoreServer::hand_in(StoreConnection& link, FrameReader& request) {
  const std::string key(key_of(request));
  const auto num_readers = request.number();
  request.expect_end();
  Fd fd = link.take_fd();
  if (!link.sender()) throw BadFrame("a descriptor of nobody");
  const auto pid = link.sender()->pid;
  // From now on the process is known by this and not by its number, which another one may get once it has ended.
  Fd pidfd = open_pidfd(pid);
  if (pid > 0 && !pidfd && errno == ESRCH) throw StoreRefusal("the process that handed it in has ended");
  if (pid > 0 && !pidfd && lacks_descriptors(errno)) throw StoreRefusal(kNoDescriptorLeft);
  table_.hand_in(key, {std::move(fd), std::move(pidfd), pid, num_readers});
  arrived(key, true);
}

void StoreServer::begin_waiting(StoreConnection& link, FrameReader& request, StoreCommand command) {
  if (link.num_waits >= limits_.num_waits) throw BadFrame("too many requests at once");
  Waiting waiting{link.id(), request.id(), command, {}, 0, 0, Clock::now()};
  const auto milliseconds = std::clamp<int64_t>(request.number(), 0, kMostMilliseconds);
  waiting.deadline += std::chrono::milliseconds(milliseconds);
  do {
    const auto key = key_of(request);
    waiting.bytes += sizeof(std::string) + key.size();
    if (link.waiting_bytes + waiting.bytes > limits_.waiting_bytes) {
      throw StoreRefusal(fmt::format("keys of more than {} bytes are waited for at once", limits_.waiting_bytes));
    }
    waiting.keys.emplace_back(key);
  } while (!request.at_end() && command != StoreCommand::get_fd);
  request.expect_end();
  ++link.num_waits;
  link.waiting_bytes += waiting.bytes;
  const auto id = next_id_++;
  waiting_.emplace(id, std::move(waiting));
  try_finish(id);
}

// Answers the request if all its keys are there; else it waits for the first that is not.
void StoreServer::try_finish(uint64_t waiting_id) {
  auto& waiting = waiting_.at(waiting_id);
  const bool is_descriptor = waiting.command == StoreCommand::get_fd;
  for (; waiting.num_found < waiting.keys.size(); ++waiting.num_found) {
    const auto& key = waiting.keys[waiting.num_found];
    if (is_descriptor ? table_.find_handed(key) != nullptr : table_.find(key) != nullptr) continue;
    by_key_.emplace(std::pair(key, is_descriptor), waiting_id);
    return;
  }
  const auto done = std::move(waiting);
  waiting_.erase(waiting_id);
  finish(done);
}

void StoreServer::arrived(const std::string& key, bool is_descriptor) {
  std::vector<uint64_t> concerned;
  const auto [begin, end] = by_key_.equal_range(std::pair(key, is_descriptor));
  for (auto entry = begin; entry != end; ++entry) concerned.push_back(entry->second);
  by_key_.erase(begin, end);
  for (const auto id : concerned) try_finish(id);
}

void StoreServer::finish(const Waiting& waiting) {
  FrameWriter answer(waiting.request, static_cast<uint8_t>(StoreStatus::ok));
  std::vector<Fd> fds;
  std::string refusal;
  const size_t most = limits_.frame_bytes / 2;
  size_t total = 0;
  if (waiting.command == StoreCommand::get) {
    for (const auto& key : waiting.keys) {
      const auto* value = table_.find(key);
      total += sizeof(uint32_t) + (value == nullptr ? 0 : value->size());
      if (total > most) break;
      answer.text(value == nullptr ? std::string_view() : *value);
    }
  } else if (waiting.command == StoreCommand::get_fd) {
    auto* handed = table_.find_handed(waiting.keys.front());
    answer.number(handed->pid);
    for (const auto* held : {&handed->fd, &handed->pidfd}) {
      if (!*held) continue;
      fds.emplace_back(fcntl(held->get(), F_DUPFD_CLOEXEC, 3));
      if (!fds.back()) refusal = kNoDescriptorLeft;
    }
    if (refusal.empty()) table_.taken(waiting.keys.front());
  }
  if (total > most) refusal = fmt::format("{} values of more than {} bytes in all", waiting.keys.size(), most);
  if (!refusal.empty()) {
    answer = FrameWriter(waiting.request, static_cast<uint8_t>(StoreStatus::refused));
    answer.text(refusal);
    fds.clear();
  }
  send(waiting, answer.finish(), std::move(fds));
}

// Answers a request that waited.
void StoreServer::send(const Waiting& waiting, std::string frame, std::vector<Fd> fds) {
  auto& connection = connections_.at(waiting.connection);
  --connection.link.num_waits;
  connection.link.waiting_bytes -= waiting.bytes;
  if (connection.closed) return;
  try {
    connection.link.send(std::move(frame), std::move(fds));
    if (!connection.link.flush()) close(connection, "");
  } catch (const BadFrame& bad) {
    close(connection, bad.what());
  } catch (const std::bad_alloc&) {
    close(connection, "there is no memory for its answer");
  }
}

StoreServer::Waiting StoreServer::forget(uint64_t waiting_id) {
  auto waiting = std::move(waiting_.extract(waiting_id).mapped());
  const auto [begin, end] =
      by_key_.equal_range({waiting.keys[waiting.num_found], waiting.command == StoreCommand::get_fd});
  const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second == waiting_id; });
  if (found != end) by_key_.erase(found);
  return waiting;
}

void StoreServer::end_late_ones() {
  const auto now = Clock::now();
  for (auto& [id, connection] : connections_) {
    const auto deadline = proof_deadline(connection);
    if (deadline && now >= *deadline) close(connection, "it proved nothing in time");
  }
  std::vector<uint64_t> late;
  for (const auto& [id, waiting] : waiting_) {
    if (now >= waiting.deadline) late.push_back(id);
  }
  for (const auto id : late) {
    const auto waiting = forget(id);
    send(waiting, FrameWriter(waiting.request, static_cast<uint8_t>(StoreStatus::timed_out)).finish());
  }
}

void StoreServer::close(Connection& connection, const std::string& reason) {
  if (std::exchange(connection.closed, true)) return;
  connection.listener = nullptr;
  if (!reason.empty()) turned_away(peer_text(connection.link.fd()), reason);
}

// Removes what was closed, with the requests that waited there.
void StoreServer::sweep() {
  std::vector<uint64_t> ended;
  for (const auto& [id, waiting] : waiting_) {
    if (connections_.at(waiting.connection).closed) ended.push_back(id);
  }
  for (const auto id : ended) forget(id);
  std::erase_if(connections_, [](const auto& entry) { return entry.second.closed; });
}

void StoreServer::turned_away(const std::string& whom, const std::string& reason) {
  const auto now = Clock::now();
  ++num_turned_away_;
  if (!say_ || (num_turned_away_ > 1 && now - said_at_ < kSayAgain)) return;
  said_at_ = now;
  const auto count = num_turned_away_ > 1 ? fmt::format(" ({} so far)", num_turned_away_) : "";
  say_(fmt::format("the ranks' store turned away {}: {}{}", whom, printable(reason), count));
}

}  // namespace orthant::launch
