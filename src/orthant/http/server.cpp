#include "orthant/http/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "orthant/base/error.h"
#include "orthant/http/connection.h"

namespace orthant::http {
namespace {

constexpr std::uint64_t kListener = 0;
constexpr std::uint64_t kWake = 1;
constexpr int kTickMilliseconds = 100;
constexpr std::size_t kMostUnsentAhead = std::size_t{1} << 18;  // bytes of answers, when the next request is taken

void epoll_add(int epoll, int fd, std::uint32_t events, std::uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) throw InternalError("a socket cannot be watched");
}

}  // namespace

// Answers.

Connection* Exchange::connection() const {
  return server_->find(connection_);
}

std::size_t Exchange::unsent() const {
  const auto* const client = connection();
  return client ? client->unsent() : 0;
}

void Exchange::answer(const Answer& answer) {
  auto* const client = connection();
  if (!client || ended_ || begun_) return;
  begun_ = ended_ = true;
  if (server_->draining_) client->keep_alive = false;
  client->queue(head_of(answer, static_cast<long long>(answer.body.size()), client->keep_alive));
  if (!head_only_) client->queue(answer.body);
  server_->post([server = server_, id = connection_] {
    if (auto* one = server->find(id)) server->serve(*one, 0);
  });
}

void Exchange::begin(const Answer& head) {
  auto* const client = connection();
  if (!client || begun_) return;
  begun_ = true;
  if (server_->draining_) client->keep_alive = false;
  client->queue(head_of(head, -1, client->keep_alive));
}

void Exchange::part(std::string_view text) {
  auto* const client = connection();
  if (!client || ended_ || text.empty()) return;
  client->queue(chunk_of(text));
  server_->serve(*client, 0);
}

void Exchange::end() {
  auto* const client = connection();
  if (!client || ended_) return;
  ended_ = true;
  client->queue(chunk_of({}));
  server_->post([server = server_, id = connection_] {
    if (auto* one = server->find(id)) server->serve(*one, 0);
  });
}

void Exchange::abandon() {
  auto* const client = connection();
  if (!client || ended_) return;
  ended_ = true;
  client->keep_alive = false;
  server_->post([server = server_, id = connection_] {
    if (auto* one = server->find(id)) server->serve(*one, 0);
  });
}

// The server.

Server::Server(launch::Fd listener, const ServerOptions& options, Handler handler, Refuser refuser)
    : options_(options),
      handler_(std::move(handler)),
      refuser_(std::move(refuser)),
      listener_(std::move(listener)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_)
    throw ConfigError("the system gives no descriptors to serve with", {.remedy = "raise ulimit -n"});
  fcntl(listener_.get(), F_SETFL, fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
  epoll_add(epoll_.get(), listener_.get(), EPOLLIN, kListener);
  epoll_add(epoll_.get(), wake_.get(), EPOLLIN, kWake);
}

Server::~Server() = default;

Connection* Server::find(std::uint64_t id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second.get();
}

void Server::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
}

void Server::run_posted() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(wake_.get(), &count, sizeof count);
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (auto& each : work) each();
}

void Server::run(const std::function<void()>& tick) {
  std::array<epoll_event, 256> events;
  auto next_tick = launch::Clock::now();
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), kTickMilliseconds);
    if (count < 0 && errno != EINTR) throw InternalError("epoll_wait failed");
    for (int i = 0; i < count; ++i) {
      const auto id = events[static_cast<std::size_t>(i)].data.u64;
      if (id == kListener) {
        accept_all();
      } else if (id == kWake) {
        run_posted();
      } else if (auto* connection = find(id)) {
        serve(*connection, events[static_cast<std::size_t>(i)].events);
      }
    }
    closed_.clear();
    if (launch::Clock::now() >= next_tick) {
      look_at_clocks();
      if (tick) tick();
      next_tick = launch::Clock::now() + std::chrono::milliseconds(kTickMilliseconds);
    }
    if (stopping_ && (connections_.empty() || launch::Clock::now() >= stop_by_)) return;
  }
}

void Server::accept_all() {
  for (int i = 0; i < launch::kMostAcceptedAtOnce && listener_; ++i) {
    auto accepted = launch::accept_tcp(listener_.get());
    if (!accepted.fd) {
      if (!launch::lacks_descriptors(errno)) return;
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);  // it would stay readable
      accept_after_ = launch::Clock::now() + launch::kNoDescriptorPause;
      return;
    }
    const int on = 1;
    setsockopt(accepted.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const auto id = ++last_id_;
    auto made = std::make_unique<Connection>(id, std::move(accepted.fd), options_.limits);
    auto& connection = *made;
    connections_.emplace(id, std::move(made));
    connection.watched = EPOLLIN | EPOLLRDHUP;
    epoll_add(epoll_.get(), connection.fd.get(), connection.watched, id);
    if (connections_.size() > options_.most_connections) {
      const auto answer = refuser_({503, fmt::format("more than {} connections", options_.most_connections)});
      connection.queue(head_of(answer, static_cast<long long>(answer.body.size()), false));
      connection.queue(answer.body);
      connection.closing = true;
      serve(connection, 0);
    }
  }
}

void Server::close(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  auto connection = std::move(found->second);
  connections_.erase(found);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd.get(), nullptr);
  if (connection->exchange && !connection->exchange->ended_) {
    connection->exchange->ended_ = true;
    if (connection->exchange->when_gone) connection->exchange->when_gone();
  }
  connection->exchange.reset();
  connection->fd.reset();
  closed_.push_back(std::move(connection));
}

// Reads and hands on what has come, sends what can be sent, and closes what is done or broken.
void Server::serve(Connection& connection, std::uint32_t events) {
  const auto id = connection.id;
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return close(id);
  if ((events & (EPOLLIN | EPOLLRDHUP)) != 0 && !connection.receive()) return close(id);
  if (connection.lingers) {
    if (connection.end_seen) close(id);
    return;
  }
  handle_requests(connection);
  if (!find(id)) return;
  if (connection.exchange && !connection.exchange->ended_ && connection.end_seen) {
    // Whoever will not send any more has most likely gone: what an answer takes is not spent on them. A client that
    // only shut its sending side is told.
    auto exchange = connection.exchange;
    if (exchange->when_gone) std::exchange(exchange->when_gone, {})();
    connection.keep_alive = false;
    if (exchange->begun_) {
      exchange->abandon();
    } else {
      exchange->answer(refuser_({400, "the connection was shut on your side before the answer: keep it open"}));
    }
  }
  if (!connection.send()) return close(id);
  if (connection.unsent() > options_.unsent_bytes) return close(id);
  if (connection.held_back && connection.unsent() <= kMostUnsentAhead) {
    post([this, id] {
      if (auto* one = find(id)) serve(*one, 0);
    });
  }
  if (connection.unsent() == 0 && connection.closing) {
    // What the client still sends is read and dropped for a moment: closing now could take the answer from it.
    if (connection.end_seen) return close(id);
    shutdown(connection.fd.get(), SHUT_WR);
    connection.lingers = true;
    connection.since = launch::Clock::now();
  }
  watch(connection);
}

void Server::handle_requests(Connection& connection) {
  const auto id = connection.id;
  for (;;) {
    if (connection.exchange && connection.exchange->ended_) {
      connection.exchange.reset();
      connection.since = launch::Clock::now();
      if (!connection.keep_alive || draining_) connection.closing = true;
    }
    if (connection.exchange || connection.closing) return;
    // Further requests wait until earlier answers have left: what a client makes the server keep is bounded.
    connection.held_back = connection.unsent() > kMostUnsentAhead;
    if (connection.held_back) return;
    if (!connection.parser.begun() && !connection.in.empty()) connection.since = launch::Clock::now();
    connection.in.erase(0, connection.parser.feed(connection.in));
    if (connection.parser.take_expectation()) connection.queue("HTTP/1.1 100 Continue\r\n\r\n");
    if (const auto& refusal = connection.parser.refusal()) {
      const auto answer = refuser_(*refusal);
      connection.queue(head_of(answer, static_cast<long long>(answer.body.size()), false));
      connection.queue(answer.body);
      connection.closing = true;
      return;
    }
    if (!connection.parser.done()) {
      if (connection.end_seen) connection.closing = true;
      return;
    }
    auto request = connection.parser.take();
    connection.keep_alive = request.keep_alive;
    connection.exchange = std::make_shared<Exchange>(*this, id, request.method == "HEAD");
    auto exchange = connection.exchange;
    handler_(std::move(request), exchange);
    if (!find(id)) return;
  }
}

void Server::watch(Connection& connection) {
  const bool reads = !connection.end_seen && connection.in.size() < (std::size_t{1} << 16);
  const std::uint32_t events = (reads ? std::uint32_t{EPOLLIN} | std::uint32_t{EPOLLRDHUP} : 0u) |
                               (connection.unsent() > 0 ? std::uint32_t{EPOLLOUT} : 0u);
  if (events == connection.watched) return;
  connection.watched = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

void Server::look_at_clocks() {
  const auto now = launch::Clock::now();
  if (accept_after_ != launch::Clock::time_point{} && now >= accept_after_ && listener_) {
    accept_after_ = {};
    epoll_add(epoll_.get(), listener_.get(), EPOLLIN, kListener);
  }
  std::vector<std::uint64_t> late;
  for (auto& [id, connection] : connections_) {
    const auto waited = now - connection->since;
    const bool begun = connection->parser.begun();
    if (connection->unsent() > 0 && now - connection->sent_at > launch::seconds(options_.send_seconds)) {
      late.push_back(id);
    } else if (connection->lingers) {
      if (waited > launch::seconds(2)) late.push_back(id);
    } else if (connection->exchange || connection->closing) {
      continue;
    } else if (begun && waited > launch::seconds(connection->parser.reads_body() ? options_.body_seconds
                                                                                 : options_.head_seconds)) {
      const auto answer = refuser_({408, "the request did not come to its end in time"});
      connection->queue(head_of(answer, static_cast<long long>(answer.body.size()), false));
      connection->queue(answer.body);
      connection->closing = true;
      post([this, number = id] {
        if (auto* one = find(number)) serve(*one, 0);
      });
    } else if (!begun && waited > launch::seconds(options_.idle_seconds)) {
      late.push_back(id);
    }
  }
  for (const auto id : late) close(id);
}

void Server::drain() {
  draining_ = true;
  if (listener_) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
    listener_.reset();
  }
  std::vector<std::uint64_t> idle;
  for (const auto& [id, connection] : connections_) {
    if (!connection->exchange && !connection->parser.begun() && connection->unsent() == 0) idle.push_back(id);
  }
  for (const auto id : idle) close(id);
}

void Server::stop(double seconds) {
  drain();
  stopping_ = true;
  stop_by_ = launch::Clock::now() + launch::seconds(seconds);
}

}  // namespace orthant::http
