// What a rank and the server of its store say to each other: frames over a stream socket, each a length, a number that
// pairs the answer with its request, a command or status, and its arguments. Both sides check every length before they
// allocate or read anything by it.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::launch {

// How much a store takes. A frame, key or value beyond these is refused, whoever sends it.
struct StoreLimits {
  size_t key_bytes = 4096;
  size_t value_bytes = size_t{16} << 20;
  size_t frame_bytes = size_t{32} << 20;   // a request, or an answer
  size_t total_bytes = size_t{256} << 20;  // of all keys and values
  size_t num_keys = size_t{1} << 20;
  size_t num_waits = 1024;                  // requests of one connection that wait at a time
  size_t waiting_bytes = size_t{32} << 20;  // of the keys that they wait for
  size_t num_descriptors = 4096;            // handed in and not yet taken by all who were named
  size_t num_strangers = 64;                // connections that have not proved themselves yet
};

inline constexpr size_t kReadBytes = 64 * 1024;  // asked of a socket at a time

enum class StoreCommand : uint8_t {
  set,          // key, value
  get,          // milliseconds, keys: the values, once all are there
  wait,         // milliseconds, keys: nothing, once all are there
  check,        // keys: 1 when all are there
  add,          // key, number: the sum
  compare_set,  // key, expected, desired: the value afterwards
  erase,        // key: 1 when it was there
  count,        // the number of keys
  append,       // key, value
  multi_set,    // key, value, key, value, ...
  put_fd,       // key, number of readers, one descriptor beside the frame
  get_fd,       // milliseconds, key: the sender's process number, with the descriptor and a pidfd of the sender
};
inline constexpr uint8_t kLastStoreCommand = static_cast<uint8_t>(StoreCommand::get_fd);

enum class StoreStatus : uint8_t { ok, timed_out, refused };
inline constexpr uint8_t kLastStoreStatus = static_cast<uint8_t>(StoreStatus::refused);

// Bytes that are no frame of this protocol; the connection they came from is closed.
class BadFrame : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Numbers are little-endian, strings a 32-bit length and their bytes.
class FrameWriter {
 public:
  FrameWriter(uint64_t id, uint8_t code);
  void number(int64_t value);
  void text(std::string_view value);
  // The whole frame, its length in front.
  std::string finish();

 private:
  std::string bytes_;
};

class FrameReader {
 public:
  // `body` is a frame without its length. BadFrame when it is too short for the head.
  explicit FrameReader(std::string_view body);

  uint64_t id() const { return id_; }
  uint8_t code() const { return code_; }

  // BadFrame when the frame ends before, or when a text is longer than `most`.
  int64_t number();
  std::string_view text(size_t most);
  bool at_end() const { return rest_.empty(); }
  void expect_end() const;

 private:
  std::string_view take(size_t count);

  std::string_view rest_;
  uint64_t id_ = 0;
  uint8_t code_ = 0;
};

inline constexpr size_t kFrameLengthBytes = 4;
inline constexpr size_t kFrameHeadBytes = 9;  // id and code

// The body of the first frame in `bytes`, if it is complete. BadFrame when its length is out of bounds.
std::optional<std::string_view> first_frame(std::string_view bytes, size_t most);

}  // namespace orthant::launch
