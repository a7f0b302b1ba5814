#include <ATen/ATen.h>

#include "orthant/nn/binding.h"

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

}  // namespace

std::vector<NamedBinder> add_binders() {
  return {{"add", bind_add}};
}

}  // namespace orthant
