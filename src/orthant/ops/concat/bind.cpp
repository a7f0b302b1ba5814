#include <ATen/ATen.h>

#include "orthant/nn/binding.h"

namespace orthant {
namespace {

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

}  // namespace

std::vector<NamedBinder> concat_binders() {
  return {{"concat", bind_concat}, {"part", bind_part}};
}

}  // namespace orthant
