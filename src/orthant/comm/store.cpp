#include "orthant/comm/store.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/comm/process_descriptors.h"
#include "orthant/comm/store_impl.h"

namespace orthant::comm {
namespace {

Store make_store(Store::Impl impl) {
  return Store(std::make_shared<Store::Impl>(std::move(impl)));
}

// The same descriptors with every key under a prefix.
class PrefixedDescriptors : public launch::FdExchange {
 public:
  PrefixedDescriptors(std::shared_ptr<launch::FdExchange> whole, std::string prefix)
      : whole_(std::move(whole)), prefix_(std::move(prefix)) {}

  void put_fd(const std::string& key, int fd, int num_readers) override {
    whole_->put_fd(prefix_ + key, fd, num_readers);
  }
  std::optional<launch::PassedFd> get_fd(const std::string& key, double timeout_seconds) override {
    return whole_->get_fd(prefix_ + key, timeout_seconds);
  }
  std::vector<std::optional<launch::PassedFd>> get_fds(const std::vector<std::string>& keys,
                                                       double timeout_seconds) override {
    std::vector<std::string> whole_keys;
    for (const auto& key : keys) whole_keys.push_back(prefix_ + key);
    return whole_->get_fds(whole_keys, timeout_seconds);
  }

 private:
  std::shared_ptr<launch::FdExchange> whole_;
  std::string prefix_;
};

// First line of c10d's message; the rest is a C++ stack that helps nobody.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Keeps what was joined, a server too, as long as somebody may ask for a descriptor.
std::shared_ptr<launch::FdExchange> descriptors_of(const std::shared_ptr<launch::JoinedStore>& joined) {
  return joined ? std::shared_ptr<launch::FdExchange>(joined, joined->client.get()) : nullptr;
}

// The store of a foreign launcher: c10d's own over TCP.
Store foreign_store(const launch::Job& job, double timeout_seconds) {
  const auto& meeting = job.rendezvous;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(meeting.port);
  options.isServer = job.rank == 0 && !meeting.served_by_launcher;
  options.waitWorkers = false;
  options.timeout = to_milliseconds(timeout_seconds);
  if (options.isServer && meeting.listen_fd >= 0) options.masterListenFd = meeting.listen_fd;
  try {
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(meeting.host, options);
    if (!meeting.prefix.empty()) store = c10::make_intrusive<c10d::PrefixStore>(meeting.prefix, store);
    return make_store({std::move(store), options.isServer});
  } catch (const std::exception& error) {
    throw CommError(fmt::format("no store at {}:{} within {:.6g} s ({}, world size {}): {}", meeting.host, meeting.port,
                                timeout_seconds, job.launcher, job.world_size, first_line(error)),
                    {.remedy = "check that rank 0 (or the launcher) runs and that the address and port are reachable",
                     .rank = job.rank});
  }
}

}  // namespace

void Store::set(const std::string& key, const std::string& value) {
  impl_->store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::string Store::get_now(const std::string& key) {
  if (!has(key)) return {};
  const auto value = impl_->store->get(key);
  return {value.begin(), value.end()};
}

std::string Store::get(const std::string& key, double timeout_seconds) {
  try {
    impl_->store->wait({key}, to_milliseconds(timeout_seconds));
    const auto value = impl_->store->get(key);
    return {value.begin(), value.end()};
  } catch (const std::exception& error) {
    throw CommError(
        fmt::format("no value of {} in the store within {:.6g} s: {}", key, timeout_seconds, first_line(error)),
        {.remedy = "see whether another rank has ended, or raise --timeout"});
  }
}

bool Store::has(const std::string& key) {
  return impl_->store->check({key});
}

void Store::erase(const std::string& key) {
  impl_->store->deleteKey(key);
}

bool Store::is_served_here() const {
  return impl_->served_here;
}

Store Store::below(const std::string& name) const {
  auto impl = *impl_;
  impl.store = c10::make_intrusive<c10d::PrefixStore>(name, impl_->store);
  impl.prefix = fmt::format("{}{}/", impl_->prefix, name);
  return make_store(std::move(impl));
}

std::shared_ptr<launch::FdExchange> Store::descriptors() const {
  if (!impl_->descriptors) return nullptr;
  return std::make_shared<PrefixedDescriptors>(impl_->descriptors, impl_->prefix);
}

Store connect(const launch::Job& job, double timeout_seconds) {
  if (!launch::has_orthant_store(job)) return foreign_store(job, timeout_seconds);
  const auto joined = launch::join_orthant_store(job, timeout_seconds);
  // Descriptors do not leave a host, and a host may have several launchers of the job: there ranks hand them to each
  // other.
  const bool one_host = job.world_size == job.local_world_size;
  return make_store({.store = make_c10d_store(joined, timeout_seconds),
                     .served_here = joined->server != nullptr,
                     .descriptors = descriptors_of(one_host ? joined : nullptr),
                     .client = joined->client});
}

Store make_process_store() {
  return make_store({c10::make_intrusive<c10d::HashStore>(), false, std::make_shared<ProcessDescriptors>()});
}

void quiet_backend_log() {
  FLAGS_caffe2_log_level = 3;
}

std::shared_ptr<void> serve_store(int listen_fd, const std::string& host, int port) {
  quiet_backend_log();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listen_fd;
  return std::make_shared<c10::intrusive_ptr<c10d::Store>>(c10::make_intrusive<c10d::TCPStore>(host, options));
}

std::vector<std::string> wait_for_all(Store store, int rank, int world_size, double timeout_seconds,
                                      const std::string& value) {
  const auto key = [](int r) { return fmt::format("arrived/{}", r); };
  store.set(key(rank), value);
  std::vector<std::string> keys;
  for (int r = 0; r < world_size; ++r) keys.push_back(key(r));
  try {
    store.impl().store->wait(keys, to_milliseconds(timeout_seconds));
    std::vector<std::string> values;
    for (const auto& bytes : store.impl().store->multiGet(keys)) values.emplace_back(bytes.begin(), bytes.end());
    return values;
  } catch (const std::exception& error) {
    std::vector<int> missing;
    try {
      for (int r = 0; r < world_size; ++r) {
        if (!store.has(key(r))) missing.push_back(r);
      }
    } catch (const std::exception&) {
      throw CommError(fmt::format("the store went away while {} ranks were meeting: {}", world_size, first_line(error)),
                      {.remedy = "see why rank 0 ended", .rank = rank});
    }
    if (missing.empty()) {
      throw CommError(fmt::format("all {} ranks arrived, but not within {:.6g} s", world_size, timeout_seconds),
                      {.remedy = "raise --timeout", .rank = rank});
    }
    throw CommError(fmt::format("{} of {} ranks arrived within {:.6g} s; missing: rank {}", world_size - missing.size(),
                                world_size, timeout_seconds, fmt::join(missing, ", ")),
                    {.remedy = "start all ranks, or raise --timeout", .rank = rank});
  }
}

}  // namespace orthant::comm
