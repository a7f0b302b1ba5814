#include "orthant/shm/pipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "orthant/base/stable_hash.h"
#include "orthant/shm/copy.h"

namespace orthant::shm {
namespace {

constexpr uint64_t kInCells = ~uint64_t{0};
constexpr size_t kPiece = 512 * 1024;  // of a placed message copied at a time

std::byte* cell_data(PipeHeader* pipe, uint64_t cell) {
  return reinterpret_cast<std::byte*>(pipe) + sizeof(PipeHeader) + cell % kCells * kCellBytes;
}

}  // namespace

OutLine::OutLine(Endpoint& endpoint, const std::string& name, int to_rank) : endpoint_(endpoint), to_rank_(to_rank) {
  pipe_ = endpoint_.arena().publish<PipeHeader>(name, kCells * kCellBytes);
}

std::shared_ptr<Operation> OutLine::start(const std::byte* data, size_t bytes, int tag) {
  if (broken_) std::rethrow_exception(broken_);
  auto send = std::make_shared<Send>();
  send->data = data;
  send->bytes = bytes;
  send->tag = tag;
  queue_.push_back(send);
  while (!send->is_done() && advance()) {
  }
  return send;
}

void OutLine::post(const Send& send, size_t cell_bytes, uint64_t placed_at) {
  pipe_->cells[posted_ % kCells] = {static_cast<uint64_t>(send.tag), send.bytes, cell_bytes, placed_at};
  if (placed_at == kInCells && cell_bytes != 0)
    std::memcpy(cell_data(pipe_, posted_), send.data + send.sent, cell_bytes);
  pipe_->posted.store(++posted_, std::memory_order_seq_cst);
  endpoint_.ring(to_rank_);
}

bool OutLine::advance() {
  try {
    return move_on();
  } catch (const PeerFailure&) {
    fail(std::current_exception());
    return true;
  }
}

bool OutLine::move_on() {
  if (queue_.empty()) return false;
  auto& send = *queue_.front();
  const auto consumed = pipe_->consumed.load(std::memory_order_seq_cst);
  const auto in_flight = posted_ - consumed;
  if (in_flight > kCells) {
    throw PeerFailure(to_rank_,
                      fmt::format("rank {} took {} messages' cells of {} posted", to_rank_, consumed, posted_));
  }
  if (send.ends_at != 0) {
    if (consumed < send.ends_at) return false;
  } else {
    if (in_flight == kCells) return false;
    auto& arena = endpoint_.arena();
    if (send.bytes > kCellBytes && arena.mapping().contains(send.data, send.bytes)) {
      post(send, 0, arena.offset_of(send.data));
      send.ends_at = posted_;
      return true;
    }
    const size_t count = std::min(kCellBytes, send.bytes - send.sent);
    post(send, count, kInCells);
    send.sent += count;
    if (send.sent < send.bytes) return true;
  }
  const auto finished = queue_.front();
  queue_.pop_front();
  finished->finish();
  return true;
}

std::vector<int> OutLine::awaited() const {
  if (queue_.empty()) return {};
  return {to_rank_};
}

void OutLine::fail(std::exception_ptr error) {
  broken_ = error;
  for (const auto& send : queue_) send->finish(error);
  queue_.clear();
}

InLine::InLine(Endpoint& endpoint, std::string name, int from_rank)
    : endpoint_(endpoint), name_hash_(stable_hash(name)), from_rank_(from_rank) {}

std::shared_ptr<Operation> InLine::start(std::byte* data, size_t bytes, int tag) {
  if (broken_) std::rethrow_exception(broken_);
  auto receive = std::make_shared<Receive>();
  receive->data = data;
  receive->bytes = bytes;
  receive->tag = tag;
  const auto arrived =
      std::find_if(set_aside_.begin(), set_aside_.end(), [&](const Arrival& a) { return a.tag == tag; });
  if (arrived != set_aside_.end()) {
    deliver(*arrived, receive);
    set_aside_.erase(arrived);
    return receive;
  }
  waiting_.push_back(receive);
  while (!receive->is_done() && advance()) {
  }
  return receive;
}

// Hands a message over; a wrong size is the receive's error. True when it fits.
bool InLine::deliver(Arrival& arrival, const std::shared_ptr<Receive>& receive) {
  if (receive->bytes != arrival.bytes) {
    receive->finish(std::make_exception_ptr(
        PeerFailure(from_rank_, fmt::format("rank {} sent {} bytes with tag {}, {} were expected", from_rank_,
                                            arrival.bytes, arrival.tag, receive->bytes))));
    return false;
  }
  if (!arrival.aside.empty()) std::memcpy(receive->data, arrival.aside.data(), arrival.bytes);
  receive->finish();
  return true;
}

std::shared_ptr<InLine::Receive> InLine::take_receive(int tag) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& r) { return r->tag == tag; });
  if (found == waiting_.end()) return nullptr;
  auto receive = *found;
  waiting_.erase(found);
  return receive;
}

void InLine::begin(const Cell& cell) {
  current_ = std::make_unique<Arrival>();
  current_->tag = static_cast<int>(cell.tag);
  current_->bytes = cell.message_bytes;
  current_->receive = take_receive(current_->tag);
  if (current_->receive && current_->receive->bytes != current_->bytes) {
    deliver(*current_, current_->receive);  // reports the wrong size
    current_->receive = nullptr;
  }
}

void InLine::end_arrival() {
  auto arrival = std::move(*current_);
  current_.reset();
  if (arrival.receive) {
    arrival.receive->finish();
  } else if (auto receive = take_receive(arrival.tag)) {
    deliver(arrival, receive);
  } else {
    set_aside_.push_back(std::move(arrival));
  }
}

void InLine::damaged(const std::string& what) const {
  throw PeerFailure(from_rank_, fmt::format("the messages of rank {} are damaged: {}", from_rank_, what));
}

// The first cell that is not taken yet, each number read once.
Cell InLine::read_cell() const {
  const auto& cell = pipe_->cells[consumed_ % kCells];
  return {read_once(cell.tag), read_once(cell.message_bytes), read_once(cell.cell_bytes), read_once(cell.placed_at)};
}

// Where the next `count` bytes of the message are.
const std::byte* InLine::source_of(const Cell& cell, size_t& count) const {
  const size_t left = current_->bytes - current_->received;
  if (cell.placed_at != kInCells) {
    const auto* whole = endpoint_.peer(from_rank_).at(cell.placed_at, current_->bytes);
    count = std::min(kPiece, left);
    return whole + current_->received;
  }
  count = cell.cell_bytes;
  if (count > kCellBytes || count > left) {
    damaged(fmt::format("{} bytes in a cell, {} of the message are left", cell.cell_bytes, left));
  }
  return cell_data(pipe_, consumed_);
}

// What nobody has asked for yet is set aside as it comes: memory is taken for bytes that are there, not for a length
// that was announced.
std::byte* InLine::target_for(size_t count) {
  if (current_->receive) return current_->receive->data + current_->received;
  current_->aside.resize(current_->received + count);
  return current_->aside.data() + current_->received;
}

bool InLine::advance() {
  try {
    return move_on();
  } catch (const PeerFailure&) {
    fail(std::current_exception());
    return true;
  }
}

bool InLine::move_on() {
  if (waiting_.empty() && !current_) return false;
  if (pipe_ == nullptr) {
    constexpr size_t kPipeBytes = sizeof(PipeHeader) + kCells * kCellBytes;
    pipe_ = reinterpret_cast<PipeHeader*>(endpoint_.peer(from_rank_).find(name_hash_, kPipeBytes));
  }
  if (pipe_ == nullptr) return false;
  const auto num_new = pipe_->posted.load(std::memory_order_acquire) - consumed_;
  if (num_new == 0) return false;
  if (num_new > kCells) damaged(fmt::format("{} cells are announced, there are {}", num_new, kCells));
  const auto cell = read_cell();
  if (!current_) begin(cell);
  size_t count = 0;
  const auto* source = source_of(cell, count);
  const bool placed = cell.placed_at != kInCells;
  copy_bytes(target_for(count), source, count, placed && current_->bytes >= kStreamingBytes);
  current_->received += count;
  const bool complete = current_->received == current_->bytes;
  if (!placed || complete) {
    pipe_->consumed.store(++consumed_, std::memory_order_seq_cst);
    endpoint_.ring(from_rank_);
  }
  if (complete) end_arrival();
  return true;
}

// Messages that fit the cells, all together, do not keep their sender waiting.
bool InLine::needs_nobody() const {
  if (current_ || waiting_.size() >= kCells) return false;
  return std::all_of(waiting_.begin(), waiting_.end(), [](const auto& r) { return r->bytes <= kCellBytes; });
}

std::vector<int> InLine::awaited() const {
  if (waiting_.empty() && !current_) return {};
  return {from_rank_};
}

void InLine::fail(std::exception_ptr error) {
  broken_ = error;
  if (current_ && current_->receive) current_->receive->finish(error);
  for (const auto& receive : waiting_) receive->finish(error);
  waiting_.clear();
  current_.reset();
}

}  // namespace orthant::shm
