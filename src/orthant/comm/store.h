// The key-value store in which ranks find each other, and the only way they talk before groups exist. Ours unless
// a foreign launcher brings one (torchrun's agent), which is c10d's. A handle: copies share the connection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "orthant/launch/fd_exchange.h"
#include "orthant/launch/job.h"

namespace orthant::comm {

class Store {
 public:
  struct Impl;
  explicit Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  void set(const std::string& key, const std::string& value);
  // Empty when the key is not there. Never blocks on other ranks.
  std::string get_now(const std::string& key);
  // Waits for it. CommError after `timeout_seconds`.
  std::string get(const std::string& key, double timeout_seconds);
  bool has(const std::string& key);
  void erase(const std::string& key);

  // Whether this process serves it, so that others depend on its staying.
  bool is_served_here() const;

  // How ranks of this host hand descriptors to each other beside this store; null where the store brings no such way.
  std::shared_ptr<launch::FdExchange> descriptors() const;

  // The same store with every key under `name`.
  Store below(const std::string& name) const;

  Impl& impl() { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// Joins the job's store; rank 0 serves it unless the launcher does. Blocks until connected or `timeout_seconds` passed.
Store connect(const launch::Job& job, double timeout_seconds);

// A store inside this process, for ranks that are threads.
Store make_process_store();

// Keeps c10d's own log quiet: its errors come with a C++ stack, ours say the same with rank and remedy. Per process;
// serve_store() does it too.
void quiet_backend_log();

// Serves c10d's own store on a socket that is already bound, for programs that know no other. Serves until the object
// is gone.
std::shared_ptr<void> serve_store(int listen_fd, const std::string& host, int port);

// Waits until all ranks have called it and returns what each brought along. Collective over the world; a rank that does
// not come within the timeout is named.
std::vector<std::string> wait_for_all(Store store, int rank, int world_size, double timeout_seconds,
                                      const std::string& value);

}  // namespace orthant::comm
