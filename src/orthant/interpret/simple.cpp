// Sums, dropout and what moves values about.
#include <ATen/ATen.h>

#include "orthant/interpret/binding.h"
#include "orthant/interpret/draws.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/token_values.h"

namespace orthant {
namespace {

// "once": coordinate 0 alone adds the whole value to its summand, which is input once - 1.
Step bind_add(const Binding& b) {
  const auto* once = b.attributes().find("once");
  const int a = b.in(0), other = b.in(1), sum = b.out(0);
  if (once != nullptr && b.tensor != nullptr && b.tensor->coordinate() != 0) {
    const int summand = std::get<std::int64_t>(*once) == 1 ? a : other;
    return [summand, sum](Frame& frame) { frame[sum] = frame[summand]; };
  }
  return [a, other, sum, over = b.owns_input()](Frame& frame) {
    frame[sum] = over ? frame[a].add_(frame[other]) : frame[a] + frame[other];
  };
}

Step bind_dropout(const Binding& b) {
  return [x = b.in(0), y = b.out(0), draw = SiteDraw(b, b.in(0))](Frame& frame) {
    const auto grid = draw.grid(frame[x], frame.pass);
    frame[y] = grid ? nn::apply_dropout(*grid, frame[x]) : frame[x];
  };
}

// in x, what its dropout is added to.
Step bind_dropout_add(const Binding& b) {
  return [x = b.in(0), residual = b.in(1), y = b.out(0), draw = SiteDraw(b, b.in(0))](Frame& frame) {
    const auto grid = draw.grid(frame[x], frame.pass);
    frame[y] = grid ? nn::dropout_sum(*grid, frame[x], frame[residual]) : frame[residual] + frame[x];
  };
}

Step bind_first_token(const Binding& b) {
  return [x = b.in(0), y = b.out(0)](Frame& frame) { frame[y] = nn::held_first_tokens(frame[x], frame.pass); };
}

Step bind_first_token_back(const Binding& b) {
  return [gy = b.in(0), gx = b.out(0)](Frame& frame) { frame[gx] = nn::first_tokens_gradient(frame[gy], frame.pass); };
}

Step bind_concat(const Binding& b) {
  return [in = b.operation.in, y = b.out(0)](Frame& frame) {
    std::vector<at::Tensor> parts;
    for (const int value : in) parts.push_back(frame[value]);
    frame[y] = at::cat(parts, 1);
  };
}

Step bind_part(const Binding& b) {
  return
      [x = b.in(0), y = b.out(0), first = b.attributes().integer("first"),
       channels = b.attributes().integer("channels")](Frame& frame) { frame[y] = frame[x].narrow(1, first, channels); };
}

// To the dtype of the unit's parameters.
Step bind_convert(const Binding& b) {
  return [x = b.in(0), y = b.out(0)](Frame& frame) { frame[y] = frame[x].to(frame.compute); };
}

}  // namespace

std::vector<NamedBinder> simple_binders() {
  return {{"add", bind_add},
          {"dropout", bind_dropout},
          {"dropout_add", bind_dropout_add},
          {"first_token", bind_first_token},
          {"first_token_back", bind_first_token_back},
          {"concat", bind_concat},
          {"part", bind_part},
          {"convert", bind_convert}};
}

}  // namespace orthant
