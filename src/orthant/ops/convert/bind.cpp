#include <ATen/ATen.h>

#include "orthant/nn/binding.h"

namespace orthant {
namespace {

// To the dtype of the unit's parameters.
Step bind_convert(const Binding& b) {
  return [x = b.in(0), y = b.out(0)](Frame& frame) { frame[y] = frame[x].to(frame.compute); };
}

}  // namespace

std::vector<NamedBinder> convert_binders() {
  return {{"convert", bind_convert}};
}

}  // namespace orthant
