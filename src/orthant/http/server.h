// An HTTP/1.1 server on one thread: epoll over non-blocking sockets, so that a thousand connections that wait cost
// memory only, and nobody who is slow holds up anybody else. Requests go to a handler; answers come at once or later,
// whole or in parts, from the server's thread. Other threads hand it work with post().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "orthant/http/message.h"
#include "orthant/http/request_parser.h"
#include "orthant/launch/sockets.h"

namespace orthant::http {

class Server;
class Connection;

// One request that waits for its answer. Made by the server, used on its thread; a call after the client has gone does
// nothing.
class Exchange {
 public:
  Exchange(Server& server, std::uint64_t connection, bool head_only)
      : server_(&server), connection_(connection), head_only_(head_only) {}

  void answer(const Answer& answer);
  // The head of an answer whose body comes in parts, then the parts, then its end.
  void begin(const Answer& head);
  void part(std::string_view text);
  void end();
  // Ends the connection in the middle of an answer, so that nobody takes it for whole.
  void abandon();

  // Bytes of answers that the client has not taken yet; 0 once it is gone.
  std::size_t unsent() const;

  bool begun() const { return begun_; }
  bool ended() const { return ended_; }

  // Called once where the client goes before the answer has ended.
  std::function<void()> when_gone = {};

 private:
  friend class Server;
  Connection* connection() const;

  Server* server_;
  std::uint64_t connection_;
  bool head_only_;  // the answer to HEAD
  bool begun_ = false;
  bool ended_ = false;
};

struct ServerOptions {
  Limits limits = {};
  std::size_t most_connections = 1024;               // further ones get 503 and are closed
  std::size_t unsent_bytes = std::size_t{16} << 20;  // of a connection whose client does not read: beyond, it is closed
  double head_seconds = 10;                          // from a request's first byte to the end of its headers
  double body_seconds = 60;                          // to the end of its body
  double idle_seconds = 75;                          // between requests
  double send_seconds = 30;                          // without the client reading anything
};

class Server {
 public:
  using Handler = std::function<void(Request request, std::shared_ptr<Exchange> exchange)>;
  // What a request that is refused before it reaches the handler gets.
  using Refuser = std::function<Answer(const Refusal& refusal)>;

  // `listener` is bound and listens.
  Server(launch::Fd listener, const ServerOptions& options, Handler handler, Refuser refuser);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Blocks until stop(). `tick` is called about every 100 ms.
  void run(const std::function<void()>& tick = {});
  // The server's thread runs it soon. Any thread.
  void post(std::function<void()> work);
  // No new connections; idle ones are closed, and others when their answer has ended. Server's thread.
  void drain();
  // run() returns once what was answered is sent, at the latest after `seconds`. Server's thread.
  void stop(double seconds);

  std::size_t num_connections() const { return connections_.size(); }

 private:
  friend class Exchange;
  friend class Connection;

  Connection* find(std::uint64_t id);
  void accept_all();
  void serve(Connection& connection, std::uint32_t events);
  void handle_requests(Connection& connection);
  void close(std::uint64_t id);
  void look_at_clocks();
  void run_posted();
  void watch(Connection& connection);

  ServerOptions options_;
  Handler handler_;
  Refuser refuser_;
  launch::Fd listener_;
  launch::Fd epoll_;
  launch::Fd wake_;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> closed_;  // kept until nobody on the stack uses them
  std::uint64_t last_id_ = 1;
  bool draining_ = false;
  bool stopping_ = false;
  launch::Clock::time_point stop_by_{};
  launch::Clock::time_point accept_after_{};
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace orthant::http
