// What launchers of several hosts say to each other: one JSON object per line over TCP. Before every attempt a node
// says hello, node 0 welcomes or refuses it and, when all are there, tells each its place; during the attempt both
// sides give signs of life, and either reports a failure or its end. Who comes to no further meeting says that it is
// over.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "orthant/launch/failure.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {

inline constexpr int kNodeProtocolVersion = 3;
inline constexpr int kMostNodes = 100'000;
inline constexpr int kMostRanksPerNode = 65'536;
inline constexpr int kMostRanks = 1 << 24;             // of all nodes
inline constexpr std::size_t kLongestPeerText = 1024;  // of a peer's texts: the rest is cut

inline constexpr int kMostAttempts = 1 << 30;

// The node is ready for the next attempt: nothing that it says about the former one comes after this.
struct Hello {
  int node_rank = 0;
  int num_nodes = 1;
  int num_ranks = 1;
  std::string run_id;
  int max_restarts = 0;
  int min_nodes = 1;
};

// The answer to a hello: the node belongs to the job and may connect its ranks to the store.
struct Welcome {};

struct Place {
  int world_size = 1;
  int rank_offset = 0;
  std::string master_address;
  int master_port = 0;  // of c10d's store; 0: there is none
  int num_nodes = 1;    // that are there
  int node_index = 0;   // among these
  int attempt = 0;
  std::string job = {};  // the name of this very job, which no other has
};

struct Refusal {
  std::string reason;
};

struct End {
  int exit_code = 0;
};

// A sign of life.
struct Alive {};

// The attempt is to end at a checkpoint: hosts have come that the next one can have.
struct Regroup {};

// There is no further attempt for whom this is sent to, or with whom it comes from; why, and with which exit code.
struct Over {
  int exit_code = 0;
  std::string reason;
};

using Message = std::variant<Hello, Welcome, Place, Refusal, Failure, End, Alive, Regroup, Over>;

// What a launcher says that comes to no further meeting, the job having ended so for it. Local.
Over over_of(const Outcome& outcome, int node_rank);

// A text as peers may tell it: fit for a terminal, no longer than kLongestPeerText. Local.
std::string bounded_text(std::string_view text);

// One line without its newline. Local.
std::string to_line(const Message& message);

// The message of one line; ConfigError saying what is wrong with any other text. Numbers are within their bounds (a
// failure never has exit code 0) and texts are fit for a terminal, as short as kLongestPeerText. Local.
Message parse_line(std::string_view line);

// A connection that carries lines. Never blocks; a peer that does not read, writes over-long lines or goes away is
// `closed`.
class LineConnection {
 public:
  static constexpr std::size_t kLongestLine = 4096;
  static constexpr std::size_t kMostLines = 64;  // that wait to be taken; more are left to the system

  explicit LineConnection(Fd fd);

  int fd() const { return fd_.get(); }
  // Nothing more will come or can be sent.
  bool closed() const { return closed_ && lines_.empty(); }
  bool overlong() const { return overlong_; }

  // The next complete line that has arrived, if any.
  std::optional<std::string> next_line();
  // Whether there is one without asking the system. Who stops when there is none hears kMostLines and a few at a time,
  // however much the peer sends.
  bool has_line() const { return !lines_.empty(); }

  void send(const Message& message);

  // Nothing more will be sent.
  void finish_sending();

  // Drops what still arrives until the peer closes too. A connection closed with unread data is reset, and the peer may
  // then lose what was sent to it. Blocks until the deadline at most.
  void wait_for_close(Clock::time_point deadline);

 private:
  void receive();

  Fd fd_;
  std::deque<std::string> lines_;
  std::string rest_;
  bool closed_ = false;
  bool overlong_ = false;
};

}  // namespace orthant::launch
