#include "orthant/launch/doorman.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace orthant::launch {

std::string network_of(const std::string& address) {
  if (const auto dot = address.rfind('.'); dot != std::string::npos) return address.substr(0, dot);
  in6_addr bytes{};
  if (inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &bytes) != 1) return address;
  return std::string(reinterpret_cast<const char*>(bytes.s6_addr), 8);
}

Doorman::Doorman(Fd listener, Membership membership, std::vector<Purpose> purposes, std::string door, Say say)
    : listener_(std::move(listener)),
      membership_(std::move(membership)),
      purposes_(std::move(purposes)),
      door_(std::move(door)),
      say_(std::move(say)) {}

Doorman::~Doorman() {
  if (!say_) return;
  for (const auto& [who, count] : complaints_) {
    if (count > 1)
      say_(fmt::format("{} more connections from {} were turned away: {}", count - 1, who.first, who.second));
  }
}

void Doorman::add_poll_fds(std::vector<pollfd>& fds) const {
  if (Clock::now() >= pause_until_) fds.push_back({listener_.get(), POLLIN, 0});
  for (const auto& visitor : visitors_) fds.push_back({visitor.fd.get(), POLLIN, 0});
}

std::optional<Clock::time_point> Doorman::next_deadline() const {
  std::optional<Clock::time_point> next;
  if (!visitors_.empty()) next = visitors_.front().until;
  if (Clock::now() < pause_until_ && (!next || pause_until_ < *next)) next = pause_until_;
  return next;
}

std::vector<Doorman::Member> Doorman::service() {
  accept_some();
  std::vector<Member> members;
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    if (!hear(*visitor)) {
      ++visitor;
      continue;
    }
    count(*visitor, -1);
    const auto& handshake = visitor->handshake;
    if (handshake.state() == ServerHandshake::State::kProved) {
      members.push_back({std::move(visitor->fd), handshake.purpose()});
    }
    visitor = visitors_.erase(visitor);
  }
  return members;
}

void Doorman::accept_some() {
  if (Clock::now() < pause_until_) return;
  for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
    pollfd ready{listener_.get(), POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0) return;
    auto [fd, address] = accept_tcp(listener_.get());
    if (!fd && (lacks_descriptors(errno))) {
      if (visitors_.empty()) {
        pause_until_ = Clock::now() + kNoDescriptorPause;
        return;
      }
      make_room();
      continue;
    }
    if (!fd) continue;  // it left before it was let in
    if (visitors_.size() >= kMostVisitors) make_room();
    watch_peer(fd.get());
    ServerHandshake handshake(membership_, purposes_);
    const auto& challenge = handshake.challenge();
    send(fd.get(), challenge.data(), challenge.size(), MSG_NOSIGNAL | MSG_DONTWAIT);  // who left is noticed by hear()
    auto network = network_of(address);
    visitors_.push_back(
        {std::move(fd), std::move(address), std::move(network), Clock::now() + seconds(kProofSeconds), handshake});
    count(visitors_.back(), 1);
  }
}

bool Doorman::hear(Visitor& visitor) {
  using State = ServerHandshake::State;
  auto& handshake = visitor.handshake;
  std::array<std::byte, kAnswerBytes> buffer;
  const auto got = recv(visitor.fd.get(), buffer.data(), handshake.wanted(), MSG_DONTWAIT);
  if (got > 0) {
    if (handshake.take(std::span(buffer).first(static_cast<std::size_t>(got))) != State::kWaiting) {
      const auto verdict = handshake.verdict();
      send(visitor.fd.get(), verdict.data(), verdict.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (handshake.state() == State::kRefused) complain(visitor.address, handshake.reason());
      return true;
    }
  } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    complain(visitor.address, "it left without an answer to the challenge");
    return true;
  }
  if (Clock::now() < visitor.until) return false;
  complain(visitor.address, fmt::format("it gave no answer to the challenge within {} s", kProofSeconds));
  return true;
}

void Doorman::count(const Visitor& visitor, int change) {
  if ((by_network_[visitor.network] += change) == 0) by_network_.erase(visitor.network);
  if ((by_address_[visitor.address] += change) == 0) by_address_.erase(visitor.address);
}

void Doorman::make_room() {
  const auto company = [&](const Visitor& v) {
    return std::pair(by_network_.at(v.network), by_address_.at(v.address));
  };
  const auto first =  // of equal ones the first
      std::max_element(visitors_.begin(), visitors_.end(),
                       [&](const Visitor& a, const Visitor& b) { return company(a) < company(b); });
  complain(first->address, "too many others were waiting");
  count(*first, -1);
  visitors_.erase(first);
}

void Doorman::complain(const std::string& address, const std::string& reason) {
  auto who = std::pair(address, reason);
  if (!complaints_.contains(who) && complaints_.size() >= kMostComplaints)
    who = {"other addresses", "no proof of membership"};
  if (++complaints_[who] > 1 || !say_) return;
  say_(fmt::format("a connection from {} to {} did not prove that it belongs to the job and was turned away: {}",
                   who.first, door_, who.second));
}

}  // namespace orthant::launch
