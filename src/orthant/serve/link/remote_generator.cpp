#include "orthant/serve/link/remote_generator.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "orthant/base/error.h"
#include "orthant/launch/passed_fds.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant {

RemoteGenerator::RemoteGenerator(const std::string& name, std::function<void()> on_change)
    : on_change_(std::move(on_change)), listener_(launch::listen_unix(name)), leave_(eventfd(0, EFD_CLOEXEC)) {
  if (!listener_ || !leave_) {
    throw CommError(fmt::format("no socket for the ranks: {}", std::strerror(errno)), {.remedy = "see ulimit -n"});
  }
  thread_ = std::thread([this] { accept_engines(); });
}

RemoteGenerator::~RemoteGenerator() {
  leaving_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(leave_.get(), &one, sizeof one);
  {
    const std::lock_guard lock(mutex_);
    if (socket_) socket_->shut();
  }
  thread_.join();
}

bool RemoteGenerator::is_up() const {
  const std::lock_guard lock(mutex_);
  return up_;
}

std::int64_t RemoteGenerator::most_tokens() const {
  const std::lock_guard lock(mutex_);
  return hello_.most_tokens;
}

std::int64_t RemoteGenerator::vocabulary() const {
  const std::lock_guard lock(mutex_);
  return hello_.vocabulary;
}

GeneratorLoad RemoteGenerator::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

void RemoteGenerator::submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) {
  check(request.sampling);
  const std::lock_guard lock(mutex_);
  if (!up_) throw CommError("no ranks are there to answer", {.remedy = "wait until they are started"});
  if (request.prompt.empty()) throw DataError("the prompt is empty", {.remedy = "give at least one token"});
  const auto outside =
      std::ranges::find_if(request.prompt, [&](std::int64_t token) { return token < 0 || token >= hello_.vocabulary; });
  if (outside != request.prompt.end()) {
    throw DataError(fmt::format("token {} is none of the model's", *outside),
                    {.remedy = fmt::format("tokens are between 0 and {}", hello_.vocabulary - 1)});
  }
  if (static_cast<std::int64_t>(request.prompt.size()) >= hello_.most_tokens) {
    throw DataError(fmt::format("a prompt of {} tokens leaves no room for an answer", request.prompt.size()),
                    {.remedy = fmt::format("prompt and answer have at most {}", hello_.most_tokens)});
  }
  sinks_[request.id] = std::move(sink);
  socket_->queue(submit_frame(request));
}

void RemoteGenerator::cancel(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (socket_ && sinks_.contains(id)) socket_->queue({FrameKind::cancel, id});
}

void RemoteGenerator::stop_engine() {
  const std::lock_guard lock(mutex_);
  if (socket_) socket_->queue({FrameKind::stop});
}

void RemoteGenerator::accept_engines() {
  while (!leaving_) {
    pollfd fds[] = {{listener_.get(), POLLIN, 0}, {leave_.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (leaving_) return;
    launch::Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) continue;
    if (!launch::is_own_user(launch::peer_of(fd.get()))) continue;  // a stranger on this host
    serve_engine(std::move(fd));
  }
}

void RemoteGenerator::serve_engine(launch::Fd fd) {
  auto socket = std::make_shared<FrameSocket>(std::move(fd));
  {
    const std::lock_guard lock(mutex_);
    socket_ = socket;
  }
  try {
    if (!leaving_) socket->read([this](const LinkFrame& frame) { return take(frame); });
  } catch (const InternalError&) {
    // What came was no frame: the connection is as good as lost.
  }
  socket->shut();
  lose_engine();
}

bool RemoteGenerator::take(const LinkFrame& frame) {
  if (frame.kind == FrameKind::hello) {
    {
      const std::lock_guard lock(mutex_);
      hello_ = read_hello(frame);
      up_ = true;
    }
    ++starts_;
    if (on_change_) on_change_();
    return true;
  }
  std::shared_ptr<TokenSink> sink;
  {
    const std::lock_guard lock(mutex_);
    if (frame.kind == FrameKind::load) load_ = read_load(frame);
    const auto found = sinks_.find(frame.id);
    if (found == sinks_.end()) return true;
    sink = found->second;
    if (frame.kind == FrameKind::finished) sinks_.erase(found);
  }
  if (frame.kind == FrameKind::token && !sink->token(read_token(frame))) {
    {
      const std::lock_guard lock(mutex_);
      sinks_.erase(frame.id);
      if (socket_) socket_->queue({FrameKind::cancel, frame.id});
    }
    sink->finished(FinishReason::stop, "");
  } else if (frame.kind == FrameKind::finished) {
    const auto finish = read_finished(frame);
    sink->finished(finish.reason, finish.error);
  }
  return true;
}

void RemoteGenerator::lose_engine() {
  std::map<std::uint64_t, std::shared_ptr<TokenSink>> orphans;
  {
    const std::lock_guard lock(mutex_);
    socket_.reset();
    up_ = false;
    orphans.swap(sinks_);
    load_.running = load_.waiting = load_.used_cache_tokens = 0;
  }
  for (auto& [id, sink] : orphans) sink->finished(FinishReason::failed, kEngineLost);
  if (on_change_) on_change_();
}

}  // namespace orthant
