#include "orthant/generate/order_channel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>

namespace orthant {
namespace {

constexpr int kLengthTag = 1, kOrderTag = 2, kTokensTag = 3;
// Messages to a rank that may be under way: a few steps and their lengths.
constexpr std::size_t kMostUnderWay = 64;

at::Tensor as_tensor(std::span<const std::int64_t> numbers) {
  return at::tensor(c10::ArrayRef<std::int64_t>(numbers.data(), numbers.size()), at::kLong);
}

}  // namespace

OrderChannel::~OrderChannel() {
  for (auto& [rank, messages] : sent_) {
    for (auto& message : messages) {
      try {
        message.work.wait();
      } catch (const std::exception&) {  // whoever waited for an answer has said it
      }
    }
  }
}

void OrderChannel::send(const StepOrder& order, int rank) {
  const auto numbers = to_numbers(order);
  const std::int64_t length = static_cast<std::int64_t>(numbers.size());
  send(as_tensor({&length, 1}), rank, kLengthTag);
  send(as_tensor(numbers), rank, kOrderTag);
}

void OrderChannel::send(std::span<const double> numbers, int rank) {
  if (numbers.empty()) return;
  send(at::tensor(c10::ArrayRef<double>(numbers.data(), numbers.size()), at::kDouble), rank, kTokensTag);
}

StepOrder OrderChannel::receive_order(int rank) {
  const auto length = receive(at::empty({1}, at::kLong), rank, kLengthTag).item<std::int64_t>();
  const auto numbers = receive(at::empty({length}, at::kLong), rank, kOrderTag);
  return order_of({numbers.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(length)});
}

std::vector<double> OrderChannel::receive_numbers(std::size_t count, int rank) {
  if (count == 0) return {};
  const auto numbers = receive(at::empty({static_cast<std::int64_t>(count)}, at::kDouble), rank, kTokensTag);
  const auto* const begin = numbers.const_data_ptr<double>();
  return {begin, begin + count};
}

void OrderChannel::send(const at::Tensor& tensor, int rank, int tag) {
  auto& messages = sent_[rank];
  while (!messages.empty() && (messages.size() >= kMostUnderWay || messages.front().work.done())) {
    messages.front().work.wait();
    messages.pop_front();
  }
  messages.push_back({tensor, world_.send(tensor, rank, tag)});
}

at::Tensor OrderChannel::receive(at::Tensor into, int rank, int tag) {
  world_.receive(into, rank, tag).wait();
  return into;
}

}  // namespace orthant
