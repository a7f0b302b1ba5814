// Stands at a listening socket and lets in only who proves membership. All that strangers can do is bounded: how many
// wait at once, for how long, how many bytes of theirs are read, and what is said about them. When too many wait, one
// of the network that has most goes: of the address there that has most, and of several such addresses the visitor that
// came first. So a crowd of one address or network costs only itself its place, and one of many networks costs a member
// its place only when as many as kMostVisitors come in the time that the member takes to answer.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orthant/launch/handshake.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {

// Tells the user, as a line on stderr.
using Say = std::function<void(const std::string&)>;

// What counts as one place that strangers come from: the first 24 bits of an IPv4 address, the first 64 of an IPv6 one.
// Local.
std::string network_of(const std::string& address);

class Doorman {
 public:
  static constexpr std::size_t kMostVisitors = 256;
  static constexpr std::size_t kMostComplaints = 32;  // pairs of address and reason that are told apart

  // `door` names in messages what they wanted to enter: "the launcher of node 0 at host:29400".
  Doorman(Fd listener, Membership membership, std::vector<Purpose> purposes, std::string door, Say say);
  // Says how many were turned away after the first of each kind.
  ~Doorman();
  Doorman(const Doorman&) = delete;
  Doorman& operator=(const Doorman&) = delete;

  int listener() const { return listener_.get(); }

  void add_poll_fds(std::vector<pollfd>& fds) const;

  // When service() has something to do even if nothing arrives.
  std::optional<Clock::time_point> next_deadline() const;

  struct Member {
    Fd fd;
    Purpose purpose;
  };
  // Accepts, listens, turns away; returns the connections that have proved themselves. Never blocks.
  std::vector<Member> service();

 private:
  struct Visitor {
    Fd fd;
    std::string address;
    std::string network;
    Clock::time_point until;
    ServerHandshake handshake;
  };

  void accept_some();
  // True when the visitor leaves the list.
  bool hear(Visitor& visitor);
  void make_room();
  void count(const Visitor& visitor, int change);
  void complain(const std::string& address, const std::string& reason);

  Fd listener_;
  Membership membership_;
  std::vector<Purpose> purposes_;
  std::string door_;
  Say say_;
  std::list<Visitor> visitors_;            // in the order of arrival
  std::map<std::string, int> by_network_;  // how many of visitors_
  std::map<std::string, int> by_address_;
  std::map<std::pair<std::string, std::string>, long> complaints_;
  Clock::time_point pause_until_{};  // no descriptor was left for one more
};

}  // namespace orthant::launch
