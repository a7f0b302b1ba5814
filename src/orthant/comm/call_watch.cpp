#include "orthant/comm/call_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace orthant::comm {
namespace {

constexpr auto kWatchEvery = std::chrono::milliseconds(10);
constexpr auto kEndsWithin = std::chrono::seconds(1);  // queues after a failure, before the process leaves

double seconds_since(CallWatch::Chronometer::time_point begin) {
  return std::chrono::duration<double>(CallWatch::Chronometer::now() - begin).count();
}

// Side by side, each on a thread that nobody waits for: what ends a queue may itself wait for a device that does not
// answer, or for calls of another queue that are before its own on the device. Ready when all have ended.
std::shared_future<void> end_all(const std::vector<std::function<void()>>& ends) {
  struct Open {
    std::atomic<std::size_t> count;
    std::promise<void> all_ended;
  };
  auto open = std::make_shared<Open>();
  open->count = ends.size();
  auto ended = open->all_ended.get_future().share();
  for (const auto& end : ends) {
    std::thread([end, open] {
      try {
        end();
      } catch (const std::exception&) {  // it has ended, or never will
      }
      if (--open->count == 0) open->all_ended.set_value();
    }).detach();
  }
  return ended;
}

}  // namespace

CallWatch::CallWatch(std::shared_ptr<NoticedFailure> noticed, std::function<void(const CommError&)> leave,
                     double patience_seconds)
    : noticed_(std::move(noticed)),
      leave_(std::move(leave)),
      patience_seconds_(patience_seconds),
      thread_([this] { run(); }) {}

CallWatch::~CallWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (ended_.valid()) ended_.wait_for(kEndsWithin);
}

int CallWatch::add_queue(ChannelMembers members, std::optional<Store> store, std::function<void()> end) {
  std::lock_guard lock(mutex_);
  if (queues_.size() == kMostQueues) {
    throw ConfigError(
        fmt::format("group {} of ranks [{}] needs one more stream of the device than the {} that do not hold one "
                    "another up: over NCCL each group, and each direction of a pair of ranks, has one, and "
                    "--check-collectives asks for one more each",
                    members.name, fmt::join(members.ranks, ", "), kMostQueues),
        {.remedy = "use --backend gloo, or smaller degrees of pp and cp, or leave --check-collectives out",
         .rank = members.own_rank()});
  }
  queues_[next_queue_] = {std::move(members), std::move(store), std::move(end), {}};
  return next_queue_++;
}

bool CallWatch::remove_queue(int queue) {
  std::lock_guard lock(mutex_);
  auto& calls = queues_.at(queue).calls;
  bool done = !failed_;
  try {
    while (done && !calls.empty()) {
      done = calls.front().look();
      if (done) calls.pop_front();
    }
  } catch (const std::exception&) {
    done = false;
  }
  queues_.erase(queue);
  return done;
}

void CallWatch::add(int queue, CallWords call, double timeout_seconds, Look look) {
  {
    std::lock_guard lock(mutex_);
    if (recording_) return;
    queues_.at(queue).calls.push_back({std::move(call), timeout_seconds, std::move(look), Chronometer::now()});
  }
  changed_.notify_all();
}

void CallWatch::record(bool recording) {
  std::lock_guard lock(mutex_);
  recording_ = recording;
}

void CallWatch::give_up() {
  std::lock_guard lock(mutex_);
  failed_ = true;
}

bool CallWatch::wait_until_done(double timeout_seconds) {
  const auto began = Chronometer::now();
  std::unique_lock lock(mutex_);
  while (!failed_ && any_calls() && seconds_since(began) < timeout_seconds) changed_.wait_for(lock, kWatchEvery / 10);
  return !failed_ && !any_calls();
}

bool CallWatch::any_calls() const {
  for (const auto& [number, queue] : queues_) {
    if (!queue.calls.empty()) return true;
  }
  return false;
}

// Under mutex_. The call that has waited longest of those that failed.
std::optional<CallWatch::Failed> CallWatch::look_at_all() {
  std::optional<Failed> failed;
  for (auto& [number, queue] : queues_) {
    while (!queue.calls.empty()) {
      auto& first = queue.calls.front();
      const double waited = seconds_since(first.since);
      std::string text;
      try {
        if (first.look()) {
          queue.calls.pop_front();
          if (!queue.calls.empty()) queue.calls.front().since = Chronometer::now();
          continue;
        }
        if (waited > first.timeout_seconds) text = fmt::format("timed out after {:.6g} s", first.timeout_seconds);
      } catch (const std::exception& error) {
        text = error.what();
      }
      if (!text.empty() && (!failed || waited > failed->waited_seconds)) failed = {number, text, waited};
      break;
    }
  }
  return failed;
}

void CallWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!any_calls()) {
      changed_.wait(lock, [&] { return stopping_ || any_calls(); });
      continue;
    }
    if (const auto failed = look_at_all()) {
      lock.unlock();
      return fail(*failed);
    }
    changed_.wait_for(lock, kWatchEvery, [&] { return stopping_; });
  }
}

void CallWatch::fail(const Failed& failed) {
  std::vector<std::function<void()>> ends;
  std::map<int, Queue> open;
  {
    std::lock_guard lock(mutex_);
    failed_ = true;
    for (const auto& [number, queue] : queues_) {
      ends.push_back(queue.end);
      if (!queue.calls.empty()) {
        auto& mine = open[number];
        mine = {queue.members, queue.store, {}, {}};
        for (const auto& watched : queue.calls) mine.calls.push_back({watched.call, watched.timeout_seconds, {}, {}});
      }
    }
  }
  const auto found = open.find(failed.queue);
  if (found == open.end()) return;  // it was closed meanwhile
  for (const auto& [number, queue] : open) {
    for (const auto& watched : queue.calls) announce_failure(queue.members, queue.store, watched.call);
  }
  const auto& first = found->second.calls.front();
  const auto error = call_failure(found->second.members, found->second.store, first.call,
                                  std::runtime_error(failed.text), failed.waited_seconds, first.timeout_seconds);
  noticed_->set(error);
  std::unique_lock lock(mutex_);
  ended_ = end_all(ends);
  const auto stays = [&](const auto& until) {
    const auto patience = std::chrono::duration<double>(patience_seconds_);
    const auto deadline = Chronometer::now() + std::chrono::duration_cast<Chronometer::duration>(patience);
    while (!stopping_ && !until() && Chronometer::now() < deadline) changed_.wait_for(lock, kWatchEvery);
    return !stopping_ && !until();
  };
  const bool is_stuck = stays([&] { return noticed_->was_told(); }) || (!stopping_ && stays([] { return false; }));
  if (!is_stuck || !leave_) return;
  lock.unlock();
  leave_(error);
}

}  // namespace orthant::comm
