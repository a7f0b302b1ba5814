#include "orthant/launch/store_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"

namespace orthant::launch {
namespace {

constexpr const char* kNoRoomForDescriptors = "this process may open no more files, so descriptors got lost";

int64_t to_milliseconds(double timeout_seconds) {
  return static_cast<int64_t>(std::clamp(timeout_seconds, 0.0, 1e9) * 1000);
}

}  // namespace

StoreClient::StoreClient(Fd connection, std::string where, double answer_seconds)
    : fd_(std::move(connection)), where_(std::move(where)), answer_seconds_(answer_seconds) {}

Clock::time_point StoreClient::answer_deadline(double timeout_seconds) const {
  return Clock::now() + seconds(std::min(timeout_seconds, 1e9) + answer_seconds_);
}

uint64_t StoreClient::next_id() {
  std::lock_guard lock(mutex_);
  return ++last_id_;
}

void StoreClient::refused(const std::string& why, bool is_descriptor) const {
  throw CommError(fmt::format("the store ({}) refused: {}", where_, why),
                  {.remedy = is_descriptor ? "raise ulimit -n where the store is served, or start fewer ranks there"
                                           : "use fewer or smaller keys"});
}

void StoreClient::lost(const std::string& why) const {
  throw CommError(fmt::format("the store ({}) is lost: {}", where_, why),
                  {.remedy = why == kNoRoomForDescriptors
                                 ? "raise the limit of open files (ulimit -n), or start fewer ranks on this host"
                                 : "see whether the launcher, or the rank that serves the store, has ended"});
}

void StoreClient::add_key(FrameWriter& request, std::string_view key) const {
  if (const size_t most = StoreLimits{}.key_bytes; key.size() > most) {
    refused(fmt::format("a key of {} bytes, at most {} are kept", key.size(), most));
  }
  request.text(key);
}

void StoreClient::add_value(FrameWriter& request, std::string_view value) const {
  if (const size_t most = StoreLimits{}.value_bytes; value.size() > most) {
    refused(fmt::format("a value of {} bytes, at most {} are kept", value.size(), most));
  }
  request.text(value);
}

void StoreClient::send(const std::string& frame, int fd, Clock::time_point deadline) {
  std::lock_guard lock(send_mutex_);
  {
    std::lock_guard state_lock(mutex_);
    if (!lost_.empty()) lost(lost_);
  }
  size_t sent = 0;
  while (sent < frame.size()) {
    std::vector<int> fds;
    if (sent == 0 && fd >= 0) fds.push_back(fd);
    const auto count = send_with_fds(fd_.get(), std::string_view(frame).substr(sent), fds);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
      continue;
    }
    std::string why;
    if (errno != EAGAIN && errno != EINTR) why = std::strerror(errno);
    if (why.empty() && wait_until(fd_.get(), POLLOUT, deadline)) continue;
    if (why.empty()) why = sent == 0 ? "it takes no requests" : "it took half a request";
    if (sent > 0) {  // what follows would be read as the rest of this frame
      std::lock_guard state_lock(mutex_);
      lost_ = why;
      changed_.notify_all();
    }
    lost(why);
  }
}

// Puts every complete answer where its caller looks for it. Under mutex_.
void StoreClient::take_frames() {
  size_t done = 0;
  while (const auto body = first_frame(std::string_view(input_).substr(done), StoreLimits{}.frame_bytes)) {
    done += kFrameLengthBytes + body->size();
    FrameReader reader(*body);
    if (reader.code() > kLastStoreStatus) throw BadFrame("an unknown status");
    Answer answer{static_cast<StoreStatus>(reader.code()), std::string(*body), {}};
    const auto awaited = awaited_.find(reader.id());
    if (awaited != awaited_.end() && awaited->second && answer.status == StoreStatus::ok) {
      while (!fds_.empty()) {
        answer.fds.push_back(std::move(fds_.front()));
        fds_.pop_front();
      }
    }
    if (awaited != awaited_.end()) answers_[reader.id()] = std::move(answer);
  }
  input_.erase(0, done);
  if (input_.empty()) fds_.clear();
}

// Reads once, or waits until something can be read. Called with `lock` held, which is open while it waits.
void StoreClient::read_until(Clock::time_point deadline, std::unique_lock<std::mutex>& lock) {
  somebody_reads_ = true;
  lock.unlock();
  std::string bytes(kReadBytes, '\0');
  wait_until(fd_.get(), POLLIN, deadline);
  auto received = receive_with_fds(fd_.get(), bytes.data(), bytes.size());
  const int error = errno;
  lock.lock();
  somebody_reads_ = false;
  if (received.cut) {
    lost_ = kNoRoomForDescriptors;
  } else if (received.num_bytes > 0) {
    input_.append(bytes, 0, static_cast<size_t>(received.num_bytes));
    for (auto& fd : received.fds) fds_.push_back(std::move(fd));
    try {
      take_frames();
    } catch (const BadFrame& bad) {
      lost_ = bad.what();
    }
  } else if (received.num_bytes == 0) {
    lost_ = "its server closed the connection";
  } else if (error != EAGAIN && error != EINTR) {
    lost_ = std::strerror(error);
  }
  changed_.notify_all();
}

StoreClient::Answer StoreClient::await(uint64_t id, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto found = answers_.find(id); found != answers_.end()) {
      auto answer = std::move(found->second);
      answers_.erase(found);
      awaited_.erase(id);
      return answer;
    }
    if (!lost_.empty()) lost(lost_);
    if (Clock::now() >= deadline) {
      awaited_.erase(id);
      lost_ = "it does not answer";
      changed_.notify_all();
      lost(lost_);
    }
    if (somebody_reads_) {
      changed_.wait_until(lock, deadline);
    } else {
      read_until(deadline, lock);
    }
  }
}

StoreClient::Answer StoreClient::call(FrameWriter request, uint64_t id, double timeout_seconds, int fd) {
  const auto deadline = answer_deadline(timeout_seconds);
  const auto frame = request.finish();
  if (const size_t most = StoreLimits{}.frame_bytes; frame.size() > most + kFrameLengthBytes) {
    refused(fmt::format("a request of {} bytes, at most {} are taken", frame.size(), most));
  }
  {
    std::lock_guard lock(mutex_);
    awaited_[id] = false;
  }
  send(frame, fd, deadline);
  auto answer = await(id, deadline);
  if (answer.status == StoreStatus::refused) {
    refused(printable(FrameReader(answer.body).text(answer.body.size())), fd >= 0);
  }
  return answer;
}

StoreClient::Answer StoreClient::call(StoreCommand command, std::initializer_list<std::string_view> texts) {
  const auto id = next_id();
  FrameWriter request(id, static_cast<uint8_t>(command));
  bool is_key = true;  // the first one
  for (const auto text : texts) std::exchange(is_key, false) ? add_key(request, text) : add_value(request, text);
  return call(std::move(request), id);
}

void StoreClient::set(std::string_view key, std::string_view value) {
  call(StoreCommand::set, {key, value});
}

void StoreClient::append(std::string_view key, std::string_view value) {
  call(StoreCommand::append, {key, value});
}

void StoreClient::multi_set(const std::vector<std::string>& keys, const std::vector<std::string_view>& values) {
  const auto id = next_id();
  FrameWriter request(id, static_cast<uint8_t>(StoreCommand::multi_set));
  for (size_t i = 0; i < keys.size(); ++i) {
    add_key(request, keys[i]);
    add_value(request, values.at(i));
  }
  call(std::move(request), id);
}

int64_t StoreClient::add(std::string_view key, int64_t value) {
  const auto id = next_id();
  FrameWriter request(id, static_cast<uint8_t>(StoreCommand::add));
  add_key(request, key);
  request.number(value);
  const auto answer = call(std::move(request), id);
  return FrameReader(answer.body).number();
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const auto answer = call(StoreCommand::compare_set, {key, expected, desired});
  return std::string(FrameReader(answer.body).text(answer.body.size()));
}

bool StoreClient::erase(std::string_view key) {
  return FrameReader(call(StoreCommand::erase, {key}).body).number() != 0;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  const auto id = next_id();
  FrameWriter request(id, static_cast<uint8_t>(StoreCommand::check));
  for (const auto& key : keys) add_key(request, key);
  return FrameReader(call(std::move(request), id).body).number() != 0;
}

int64_t StoreClient::num_keys() {
  return FrameReader(call(StoreCommand::count, {}).body).number();
}

StoreClient::Answer StoreClient::wait_for_keys(StoreCommand command, const std::vector<std::string>& keys,
                                               double timeout_seconds) {
  const auto id = next_id();
  FrameWriter request(id, static_cast<uint8_t>(command));
  request.number(to_milliseconds(timeout_seconds));
  for (const auto& key : keys) add_key(request, key);
  return call(std::move(request), id, timeout_seconds);
}

bool StoreClient::wait(const std::vector<std::string>& keys, double timeout_seconds) {
  return keys.empty() || wait_for_keys(StoreCommand::wait, keys, timeout_seconds).status == StoreStatus::ok;
}

std::optional<std::vector<std::string>> StoreClient::get(const std::vector<std::string>& keys, double timeout_seconds) {
  std::vector<std::string> values;
  if (keys.empty()) return values;
  const auto answer = wait_for_keys(StoreCommand::get, keys, timeout_seconds);
  if (answer.status == StoreStatus::timed_out) return std::nullopt;
  FrameReader reader(answer.body);
  for (size_t i = 0; i < keys.size(); ++i) values.emplace_back(reader.text(answer.body.size()));
  return values;
}

void StoreClient::put_fd(const std::string& key, int fd, int num_readers) {
  const auto id = next_id();
  FrameWriter request(id, static_cast<uint8_t>(StoreCommand::put_fd));
  add_key(request, key);
  request.number(num_readers);
  call(std::move(request), id, 0, fd);
}

std::optional<PassedFd> StoreClient::get_fd(const std::string& key, double timeout_seconds) {
  return std::move(get_fds({key}, timeout_seconds).front());
}

std::vector<std::optional<PassedFd>> StoreClient::get_fds(const std::vector<std::string>& keys,
                                                          double timeout_seconds) {
  const auto deadline = answer_deadline(timeout_seconds);
  std::vector<uint64_t> ids;
  std::string frames;
  for (const auto& key : keys) {
    ids.push_back(next_id());
    FrameWriter request(ids.back(), static_cast<uint8_t>(StoreCommand::get_fd));
    request.number(to_milliseconds(timeout_seconds));
    add_key(request, key);
    frames += request.finish();
  }
  {
    std::lock_guard lock(mutex_);
    for (const auto id : ids) awaited_[id] = true;
  }
  send(frames, -1, deadline);
  std::vector<std::optional<PassedFd>> passed;
  for (const auto id : ids) passed.push_back(passed_in(await(id, deadline)));
  return passed;
}

std::optional<PassedFd> StoreClient::passed_in(Answer answer) {
  if (answer.status == StoreStatus::timed_out) return std::nullopt;
  if (answer.status == StoreStatus::refused) {
    refused(printable(FrameReader(answer.body).text(answer.body.size())), true);
  }
  if (answer.fds.empty() || answer.fds.size() > 2) lost("an answer without its descriptors");
  const auto pid = static_cast<pid_t>(FrameReader(answer.body).number());
  PassedFd passed{std::move(answer.fds[0]), {}, pid};
  if (answer.fds.size() == 2) passed.pidfd = std::move(answer.fds[1]);
  if (pid == getpid()) passed.pidfd.reset();
  return passed;
}

}  // namespace orthant::launch
