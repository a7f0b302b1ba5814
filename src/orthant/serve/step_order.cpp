#include "orthant/serve/step_order.h"

#include <bit>

#include "orthant/base/error.h"

namespace orthant {
namespace {

class OrderReader {
 public:
  explicit OrderReader(std::span<const std::int64_t> numbers) : left_(numbers) {}

  std::int64_t number() { return take(1).front(); }
  double real() { return std::bit_cast<double>(number()); }
  template <class T>
  std::vector<T> list() {
    const auto numbers = take(number());
    return {numbers.begin(), numbers.end()};
  }
  void end() const {
    if (!left_.empty()) throw InternalError("an order of a generation's step has too many numbers");
  }

 private:
  std::span<const std::int64_t> take(std::int64_t count) {
    if (count < 0 || count > static_cast<std::int64_t>(left_.size())) {
      throw InternalError("an order of a generation's step has too few numbers");
    }
    const auto taken = left_.first(static_cast<std::size_t>(count));
    left_ = left_.subspan(taken.size());
    return taken;
  }

  std::span<const std::int64_t> left_;
};

class OrderWriter {
 public:
  void number(std::int64_t value) { numbers_.push_back(value); }
  void real(double value) { number(std::bit_cast<std::int64_t>(value)); }
  template <class T>
  void list(const std::vector<T>& values) {
    number(static_cast<std::int64_t>(values.size()));
    for (const auto value : values) number(static_cast<std::int64_t>(value));
  }
  std::vector<std::int64_t> take() { return std::move(numbers_); }

 private:
  std::vector<std::int64_t> numbers_;
};

void write(OrderWriter& to, const SamplingParams& params) {
  for (const double value : {params.temperature, params.top_p, params.min_p, params.repetition_penalty}) {
    to.real(value);
  }
  to.number(params.top_k);
  to.number(params.logprobs);
  to.number(static_cast<std::int64_t>(params.seed));
}

// What ends an answer is decided by whoever gives the orders.
SamplingParams read_params(OrderReader& from) {
  SamplingParams params;
  for (double* value : {&params.temperature, &params.top_p, &params.min_p, &params.repetition_penalty}) {
    *value = from.real();
  }
  params.top_k = static_cast<int>(from.number());
  params.logprobs = static_cast<int>(from.number());
  params.seed = static_cast<std::uint64_t>(from.number());
  return params;
}

}  // namespace

std::vector<std::int64_t> to_numbers(const StepOrder& order) {
  OrderWriter to;
  to.number(order.last ? 1 : 0);
  to.number(order.joins ? 1 : 0);
  to.list(order.ended);
  to.number(static_cast<std::int64_t>(order.parts.size()));
  std::size_t begun = 0;
  for (const auto& part : order.parts) {
    to.number(static_cast<std::int64_t>(part.sequence));
    to.number(part.past);
    to.number(part.answer);
    to.list(part.tokens);
    to.list(part.blocks);
    to.number(part.first ? 1 : 0);
    if (part.first) write(to, order.begun.at(begun++));
  }
  return to.take();
}

StepOrder order_of(std::span<const std::int64_t> numbers) {
  OrderReader from(numbers);
  StepOrder order;
  order.last = from.number() != 0;
  order.joins = from.number() != 0;
  order.ended = from.list<std::uint64_t>();
  const auto parts = from.number();
  for (std::int64_t i = 0; i < parts; ++i) {
    StepPart part;
    part.sequence = static_cast<std::uint64_t>(from.number());
    part.past = from.number();
    part.answer = from.number();
    part.tokens = from.list<std::int64_t>();
    part.blocks = from.list<std::int32_t>();
    part.first = from.number() != 0;
    if (part.first) order.begun.push_back(read_params(from));
    order.parts.push_back(std::move(part));
  }
  from.end();
  return order;
}

std::size_t num_numbers(std::span<const int> logprobs) {
  std::size_t count = 0;
  for (const int most : logprobs) count += most < 0 ? 1U : 2U + 2U * static_cast<std::size_t>(most);
  return count;
}

std::vector<double> to_numbers(std::span<const GeneratedToken> tokens, std::span<const int> logprobs) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    numbers.push_back(static_cast<double>(tokens[i].token));
    if (logprobs[i] < 0) continue;
    numbers.push_back(tokens[i].logprob);
    for (std::size_t k = 0; k < static_cast<std::size_t>(logprobs[i]); ++k) {
      const bool has = k < tokens[i].most.size();  // a small vocabulary has fewer
      numbers.push_back(has ? static_cast<double>(tokens[i].most[k].token) : -1);
      numbers.push_back(has ? tokens[i].most[k].logprob : 0);
    }
  }
  return numbers;
}

std::vector<GeneratedToken> tokens_of(std::span<const double> numbers, std::span<const int> logprobs) {
  if (numbers.size() != num_numbers(logprobs)) throw InternalError("a step's tokens came back as other numbers");
  std::vector<GeneratedToken> tokens;
  std::size_t at = 0;
  const auto id = [&] { return static_cast<std::int64_t>(numbers[at++]); };
  for (const int most : logprobs) {
    GeneratedToken made{.token = id()};
    if (most >= 0) made.logprob = numbers[at++];
    for (int k = 0; k < most; ++k) {
      const auto token = id();
      const double logprob = numbers[at++];
      if (token >= 0) made.most.push_back({token, logprob});
    }
    tokens.push_back(std::move(made));
  }
  return tokens;
}

}  // namespace orthant
