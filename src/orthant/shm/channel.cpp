#include "orthant/shm/channel.h"

#include <fmt/format.h>

namespace orthant::shm {

Channel::Channel(Endpoint& endpoint, std::string name, std::vector<int> ranks, int index, double timeout_seconds)
    : endpoint_(endpoint),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      index_(index),
      timeout_seconds_(timeout_seconds) {
  collectives_ = std::make_shared<CollectiveLine>(endpoint_, name_, ranks_, index_);
  collectives_->timeout_seconds = timeout_seconds_;
}

Channel::~Channel() {
  const auto give_up = [](Line& line) {
    std::lock_guard lock(line.mutex);
    line.fail(std::make_exception_ptr(std::runtime_error("the group was closed")));
  };
  give_up(*collectives_);
  for (const auto& [peer, line] : out_) give_up(*line);
  for (const auto& [peer, line] : in_) give_up(*line);
}

void Channel::set_timeout(double timeout_seconds) {
  std::lock_guard lock(lines_mutex_);
  timeout_seconds_ = timeout_seconds;
  collectives_->timeout_seconds = timeout_seconds;
  for (const auto& [peer, line] : out_) line->timeout_seconds = timeout_seconds;
  for (const auto& [peer, line] : in_) line->timeout_seconds = timeout_seconds;
}

std::string Channel::pipe_name(int from, int to) const {
  return fmt::format("{}/{}-{}", name_, from, to);
}

template <class T, class Start>
Ticket Channel::start(const std::shared_ptr<T>& line, const Start& begin) {
  std::shared_ptr<Operation> operation;
  bool needs_thread = false;
  {
    std::lock_guard lock(line->mutex);
    operation = begin(*line);
    needs_thread = !line->needs_nobody();
  }
  if (!operation->is_done()) endpoint_.open(line, needs_thread);
  return Ticket(endpoint_, line, operation);
}

Ticket Channel::collective(CollectiveRequest request) {
  return start(collectives_, [&](CollectiveLine& line) { return line.start(std::move(request)); });
}

std::shared_ptr<OutLine> Channel::line_to(int peer) {
  std::lock_guard lock(lines_mutex_);
  auto& line = out_[peer];
  if (!line) {
    line = std::make_shared<OutLine>(endpoint_, pipe_name(index_, peer), ranks_[static_cast<size_t>(peer)]);
    line->timeout_seconds = timeout_seconds_;
  }
  return line;
}

std::shared_ptr<InLine> Channel::line_from(int peer) {
  std::lock_guard lock(lines_mutex_);
  auto& line = in_[peer];
  if (!line) {
    line = std::make_shared<InLine>(endpoint_, pipe_name(peer, index_), ranks_[static_cast<size_t>(peer)]);
    line->timeout_seconds = timeout_seconds_;
  }
  return line;
}

Ticket Channel::send(const std::byte* data, size_t bytes, int peer, int tag) {
  return start(line_to(peer), [&](OutLine& out) { return out.start(data, bytes, tag); });
}

Ticket Channel::receive(std::byte* data, size_t bytes, int peer, int tag) {
  return start(line_from(peer), [&](InLine& in) { return in.start(data, bytes, tag); });
}

}  // namespace orthant::shm
