// The keys and values of a store and the descriptors handed in, within bounds that no client can exceed. What c10d's
// stores promise about add, compare_set and append holds here too. Not thread-safe: the server's thread owns it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "orthant/launch/passed_fds.h"
#include "orthant/launch/store_protocol.h"

namespace orthant::launch {

// A request that is well-formed but asks for more than the store gives. The connection stays.
class StoreRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class StoreTable {
 public:
  explicit StoreTable(const StoreLimits& limits) : limits_(limits) {}

  // Throw StoreRefusal when a bound would be exceeded; nothing is changed then.
  void set(std::string_view key, std::string_view value);
  void append(std::string_view key, std::string_view value);
  int64_t add(std::string_view key, int64_t value);
  // The value afterwards, or `expected` when there is none and one was expected, as c10d's TCPStore answers.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);

  // Null when it is not there.
  const std::string* find(const std::string& key) const;
  bool erase(const std::string& key);
  size_t num_keys() const { return values_.size(); }

  // A descriptor for so many takers as `readers_left` says, and who handed it in.
  struct Handed {
    Fd fd;
    Fd pidfd;  // of whoever handed it in; empty where the system has none
    pid_t pid = 0;
    int64_t readers_left = 0;
  };
  void hand_in(std::string_view key, Handed handed);
  Handed* find_handed(const std::string& key);
  // One reader has got it; the last one's copy is the last one held here.
  void taken(const std::string& key);

 private:
  void put(std::string_view key, std::string value);

  StoreLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  size_t total_bytes_ = 0;
  std::map<std::string, Handed> handed_;
};

}  // namespace orthant::launch
