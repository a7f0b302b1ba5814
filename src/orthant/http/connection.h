// One client of the server: bytes that came and are not read yet, bytes that are to be sent, and what it waits for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "orthant/http/request_parser.h"
#include "orthant/http/server.h"
#include "orthant/launch/sockets.h"

namespace orthant::http {

class Connection {
 public:
  Connection(std::uint64_t number, launch::Fd socket, const Limits& limits)
      : id(number), fd(std::move(socket)), parser(limits), since(launch::Clock::now()), sent_at(since) {}

  // Reads what has come, a bounded amount. False when the socket is broken.
  bool receive();
  // Sends what it can. False when the client is gone.
  bool send();
  void queue(std::string_view bytes);
  std::size_t unsent() const { return out.size() - out_at; }

  std::uint64_t id;
  launch::Fd fd;
  RequestParser parser;
  std::string in;  // of the next requests
  std::string out;
  std::size_t out_at = 0;              // what of it was sent
  std::shared_ptr<Exchange> exchange;  // the request that is being answered
  bool keep_alive = true;
  bool held_back = false;           // requests wait in `in` until answers have left
  bool closing = false;             // closed as soon as everything is sent
  bool end_seen = false;            // the client has shut its sending side
  bool lingers = false;             // sent all and shut: waits for the client to have read it
  std::uint32_t watched = 0;        // events that epoll was asked for
  launch::Clock::time_point since;  // the begin of what it waits for: a request, its body, the next request
  launch::Clock::time_point sent_at;
  bool head_done = false;
};

}  // namespace orthant::http
