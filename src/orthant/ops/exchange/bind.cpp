// What ranks of the tensor axis exchange, and the local halves of exchanges.
#include <ATen/ATen.h>

#include "orthant/nn/binding.h"
#include "orthant/ops/exchange/token_values.h"
#include "orthant/ops/experts/token_exchange.h"

namespace orthant {
namespace {

// Names of the parameters that a sum is about; nobody's in particular where an operation has none.
std::vector<std::string_view> subject_of(const Binding& b) {
  std::vector<std::string_view> names;
  for (const auto* parameter : b.parameters) {
    if (parameter == nullptr) continue;
    for (const auto& name : parameter->subject) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  if (names.empty()) names.push_back(b.unit);
  return names;
}

// in rows, counts, held.
Step bind_moving_rows(const Binding& b) {
  const bool out = b.operation.exchange->kind == ExchangeSpec::Kind::to_experts;
  return [move = out ? nn::to_experts : nn::from_experts, from = b.in(0), counts = b.in(1), held = b.in(2),
          to = b.out(0)](Frame& frame) {
    nn::MovingRows moving = move(frame[from], frame[counts], frame[held], *frame.pass.experts);
    frame[to] = std::move(moving.rows);
    frame.arriving[static_cast<std::size_t>(to)] = std::move(moving.exchange);
  };
}

Step bind_start(const Binding& b) {
  const ExchangeSpec spec = *b.operation.exchange;
  if (spec.moves_rows()) return bind_moving_rows(b);
  const int from = b.in(0), to = b.out(0);
  if (spec.kind == ExchangeSpec::Kind::gather && spec.dim != 0) {
    return [from, to, channels = b.placement(to).dims.back().factor](Frame& frame) {
      frame[to] = nn::gather_channels(frame[from].contiguous(), channels, *frame.pass.tensor);
    };
  }
  if (spec.kind == ExchangeSpec::Kind::gather) {
    return [from, to](Frame& frame) {
      const at::Tensor own = frame[from].contiguous();
      frame[to] = at::empty({frame.pass.num_tokens(), own.size(1)}, own.options());
      frame.arriving[static_cast<std::size_t>(to)] = frame.pass.tensor->gather(frame[to], own);
    };
  }
  if (spec.kind == ExchangeSpec::Kind::sum) {
    return [from, to, subject = subject_of(b)](Frame& frame) {
      frame[to] = frame[from].contiguous();
      frame.arriving[static_cast<std::size_t>(to)] = frame.pass.tensor->sum(frame[to], subject);
    };
  }
  return [from, to, subject = subject_of(b)](Frame& frame) {
    const at::Tensor partial = frame[from].contiguous();
    frame[to] = at::empty({frame.pass.own_tokens().size(), partial.size(1)}, partial.options());
    frame.arriving[static_cast<std::size_t>(to)] = frame.pass.tensor->scatter(frame[to], partial, subject);
  };
}

// in what was sent, what arrives.
Step bind_wait(const Binding& b) {
  return [value = b.in(1)](Frame& frame) {
    auto& exchange = frame.arriving[static_cast<std::size_t>(value)];
    if (exchange) exchange->wait();
    exchange.reset();
  };
}

// A rank's part of something that all have whole.
Step bind_own_part(const Binding& b) {
  if (b.attributes().integer("dim") == 0) {
    return [x = b.in(0), y = b.out(0)](Frame& frame) {
      const Range own = frame.pass.own_tokens();
      frame[y] = frame[x].narrow(0, own.begin, own.size());
    };
  }
  return [x = b.in(0), y = b.out(0), size = b.attributes().integer("size")](Frame& frame) {
    const Range own = frame.pass.tensor->part(size);
    frame[y] = frame[x].narrow(1, own.begin, own.size()).contiguous();
  };
}

}  // namespace

std::vector<NamedBinder> exchange_binders() {
  return {{"start", bind_start}, {"wait", bind_wait}, {"own_part", bind_own_part}};
}

}  // namespace orthant
