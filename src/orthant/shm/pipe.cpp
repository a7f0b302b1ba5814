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
  const auto posted = pipe_->posted.load(std::memory_order_relaxed);
  pipe_->cells[posted % kCells] = {static_cast<uint64_t>(send.tag), send.bytes, cell_bytes, placed_at};
  if (placed_at == kInCells && cell_bytes != 0)
    std::memcpy(cell_data(pipe_, posted), send.data + send.sent, cell_bytes);
  pipe_->posted.store(posted + 1, std::memory_order_seq_cst);
  endpoint_.ring(to_rank_);
}

bool OutLine::advance() {
  if (queue_.empty()) return false;
  auto& send = *queue_.front();
  const auto posted = pipe_->posted.load(std::memory_order_relaxed);
  const auto consumed = pipe_->consumed.load(std::memory_order_seq_cst);
  if (send.ends_at != 0) {
    if (consumed < send.ends_at) return false;
  } else {
    if (posted - consumed == kCells) return false;
    auto& arena = endpoint_.arena();
    if (send.bytes > kCellBytes && arena.mapping().contains(send.data, send.bytes)) {
      post(send, 0, arena.offset_of(send.data));
      send.ends_at = posted + 1;
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
  if (!current_->receive) current_->aside.resize(current_->bytes);
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

bool InLine::advance() {
  if (waiting_.empty() && !current_) return false;
  if (pipe_ == nullptr) pipe_ = reinterpret_cast<PipeHeader*>(endpoint_.peer(from_rank_).find(name_hash_));
  if (pipe_ == nullptr) return false;
  const auto consumed = pipe_->consumed.load(std::memory_order_relaxed);
  if (pipe_->posted.load(std::memory_order_acquire) == consumed) return false;
  const auto cell = pipe_->cells[consumed % kCells];
  if (!current_) begin(cell);
  auto* target = (current_->receive ? current_->receive->data : current_->aside.data()) + current_->received;
  const bool placed = cell.placed_at != kInCells;
  const size_t count = placed ? std::min(kPiece, current_->bytes - current_->received) : cell.cell_bytes;
  const auto* source =
      placed ? endpoint_.peer(from_rank_).at(cell.placed_at) + current_->received : cell_data(pipe_, consumed);
  copy_bytes(target, source, count, placed && current_->bytes >= kStreamingBytes);
  current_->received += count;
  const bool complete = current_->received == current_->bytes;
  if (!placed || complete) {
    pipe_->consumed.store(consumed + 1, std::memory_order_seq_cst);
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
