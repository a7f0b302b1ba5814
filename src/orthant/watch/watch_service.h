// The routes of a run's live page: the page, the events that keep it up to date, numbers for Prometheus. Everything is
// read-only. While nobody asks, the run is not looked at.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "orthant/http/access.h"
#include "orthant/http/server.h"
#include "orthant/watch/live_page.h"
#include "orthant/watch/run_watch.h"

namespace orthant::watch {

class WatchService {
 public:
  WatchService(RunWatch& watch, http::AccessRules access);

  // The handler and refuser of the server. Server's thread.
  void handle(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange);
  static http::Answer refuse(const http::Refusal& refusal);

  // About every 100 ms: looks when it is time, and sends what is new to those who take it as fast as it comes.
  void tick();
  // The newest state for all who follow, and the end.
  void close();

 private:
  struct Follower {
    std::shared_ptr<http::Exchange> exchange;
    std::string seen;  // the page's revision
    launch::Clock::time_point heard{};
  };

  void look();
  void follow(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange);
  void send(Follower& follower);

  RunWatch& watch_;
  http::AccessRules access_;
  LivePage page_;
  bool drawn_ = false;  // the page is that of the last look
  std::list<Follower> followers_;
};

}  // namespace orthant::watch
