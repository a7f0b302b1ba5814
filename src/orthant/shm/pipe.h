// Messages from one rank to another: a ring of cells in the sender's arena. The sender fills cells message by message;
// the receiver takes them out and matches messages to receives by tag, in order within a tag. A message that nobody has
// asked for yet is set aside as soon as a receive of another tag waits behind it.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "orthant/shm/endpoint.h"

namespace orthant::shm {

inline constexpr uint64_t kCells = 4;
inline constexpr size_t kCellBytes = 256 * 1024;

struct Cell {
  uint64_t tag;
  uint64_t message_bytes;  // of the whole message
  uint64_t cell_bytes;     // of it in this cell
  uint64_t placed_at;      // offset in the sender's arena of a message that is read from there; ~0: it is in the cells
};

struct PipeHeader {
  alignas(64) std::atomic<uint64_t> posted;    // cells filled, by the sender
  alignas(64) std::atomic<uint64_t> consumed;  // cells taken, by the receiver
  alignas(64) Cell cells[kCells];
};

// The sending end.
class OutLine : public Line {
 public:
  // Publishes the pipe under `name`. Local.
  OutLine(Endpoint& endpoint, const std::string& name, int to_rank);

  // The operation is done when the tensor may be changed again. The caller holds `mutex`.
  std::shared_ptr<Operation> start(const std::byte* data, size_t bytes, int tag);

  bool advance() override;
  bool idle() const override { return queue_.empty(); }
  bool needs_nobody() const override { return queue_.empty(); }
  std::vector<int> awaited() const override;
  void fail(std::exception_ptr error) override;

 private:
  struct Send : Operation {
    const std::byte* data;
    size_t bytes;
    int tag;
    size_t sent = 0;
    uint64_t ends_at = 0;  // placed: done when this many cells are consumed
  };

  bool move_on();
  void post(const Send& send, size_t cell_bytes, uint64_t placed_at);

  Endpoint& endpoint_;
  int to_rank_;
  PipeHeader* pipe_;
  uint64_t posted_ = 0;
  std::deque<std::shared_ptr<Send>> queue_;
  std::exception_ptr broken_;
};

// The receiving end.
class InLine : public Line {
 public:
  InLine(Endpoint& endpoint, std::string name, int from_rank);

  // The caller holds `mutex`.
  std::shared_ptr<Operation> start(std::byte* data, size_t bytes, int tag);

  bool advance() override;
  bool idle() const override { return waiting_.empty() && !current_; }
  bool needs_nobody() const override;
  std::vector<int> awaited() const override;
  void fail(std::exception_ptr error) override;

 private:
  struct Receive : Operation {
    std::byte* data;
    size_t bytes;
    int tag;
  };
  // A message that is arriving or has arrived before its receive.
  struct Arrival {
    int tag = 0;
    size_t bytes = 0;
    size_t received = 0;
    std::shared_ptr<Receive> receive;  // null: into `aside`
    std::vector<std::byte> aside;
  };

  bool move_on();
  Cell read_cell() const;
  const std::byte* source_of(const Cell& cell, size_t& count) const;
  std::byte* target_for(size_t count);
  std::shared_ptr<Receive> take_receive(int tag);
  void begin(const Cell& cell);
  void end_arrival();
  [[noreturn]] void damaged(const std::string& what) const;
  bool deliver(Arrival& arrival, const std::shared_ptr<Receive>& receive);

  Endpoint& endpoint_;
  uint64_t name_hash_;
  int from_rank_;
  PipeHeader* pipe_ = nullptr;
  uint64_t consumed_ = 0;
  std::list<std::shared_ptr<Receive>> waiting_;
  std::list<Arrival> set_aside_;  // complete
  std::unique_ptr<Arrival> current_;
  std::exception_ptr broken_;
};

}  // namespace orthant::shm
