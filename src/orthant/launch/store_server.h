// The store in which the ranks of a job find each other, served by one thread: connections inherited from the launcher,
// or accepted at listeners that let nobody in who has not proved itself. A connection that misbehaves is closed, the
// others notice nothing; a request that waits for a key holds nobody up.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "orthant/launch/doorman.h"
#include "orthant/launch/store_connection.h"
#include "orthant/launch/store_table.h"

namespace orthant::launch {

class StoreServer {
 public:
  // `say` is told, from the server's thread, who was turned away and why: one line, then at most one a minute.
  explicit StoreServer(std::function<void(const std::string&)> say = nullptr, const StoreLimits& limits = {});
  // Ends the thread and closes all connections.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // A rank at the other end of a socket of ours; what does not come from `pid` (0: from this user) ends it. Before
  // start() only.
  void add(Fd connection, pid_t pid = 0);

  // What must be shown on a connection just accepted; null with a reason: it is closed at once.
  using Meet = std::function<std::unique_ptr<Admission>(int connection, std::string& reason)>;
  // Accepts until `is_complete`, asked after every admission, is true. Whoever has not proved itself after
  // `patience_seconds` is closed, and so is the oldest of too many; nothing: those who may talk at all are waited for,
  // however many they are. Before start() only.
  void listen(Fd listener, Meet meet, std::function<bool()> is_complete = nullptr,
              std::optional<double> patience_seconds = 5);

  // The same for members on other hosts, who prove themselves to the doorman. Before start() only.
  void listen(std::unique_ptr<Doorman> doorman);

  void start();

 private:
  struct Listener {
    Fd fd;
    Meet meet;
    std::function<bool()> is_complete;
    std::optional<double> patience_seconds;
    Clock::time_point pause_until{};  // no descriptor was left for one more
  };
  struct Connection {
    StoreConnection link;
    Listener* listener;   // of a stranger, until it is admitted
    bool closed = false;  // to be removed when nobody holds a reference to it
  };
  // A request that is answered when all its keys are there, or at its deadline.
  struct Waiting {
    uint64_t connection = 0;
    uint64_t request = 0;
    StoreCommand command = StoreCommand::wait;
    std::vector<std::string> keys;
    size_t num_found = 0;
    size_t bytes = 0;  // of the keys
    Clock::time_point deadline;
  };

  void run();
  int milliseconds_to_wait() const;
  static std::optional<Clock::time_point> proof_deadline(const Connection& connection);
  void accept_at(Listener& listener);
  bool accept_one(Listener& listener);
  bool drop_oldest_stranger();
  void serve(Connection& connection);
  bool admit(Connection& connection);
  void handle(StoreConnection& link, std::string_view body);
  std::string answer(StoreConnection& link, FrameReader& request, StoreCommand command);
  void hand_in(StoreConnection& link, FrameReader& request);
  void begin_waiting(StoreConnection& link, FrameReader& request, StoreCommand command);
  void arrived(const std::string& key, bool is_descriptor = false);
  void try_finish(uint64_t waiting_id);
  void finish(const Waiting& waiting);
  void send(const Waiting& waiting, std::string frame, std::vector<Fd> fds = {});
  Waiting forget(uint64_t waiting_id);
  void end_late_ones();
  void close(Connection& connection, const std::string& reason);
  void sweep();
  void turned_away(const std::string& whom, const std::string& reason);
  std::string_view key_of(FrameReader& request) const { return request.text(limits_.key_bytes); }

  StoreLimits limits_;
  std::function<void(const std::string&)> say_;
  StoreTable table_;
  std::list<Listener> listeners_;
  std::vector<std::unique_ptr<Doorman>> doormen_;
  std::map<uint64_t, Connection> connections_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Waiting> waiting_;
  std::multimap<std::pair<std::string, bool>, uint64_t> by_key_;  // what each waiting request lacks first; true: an fd
  size_t num_turned_away_ = 0;
  Clock::time_point said_at_;
  Fd wake_;
  std::thread thread_;
};

}  // namespace orthant::launch
