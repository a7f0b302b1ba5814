#include <ATen/ATen.h>

#include "orthant/nn/binding.h"
#include "orthant/ops/dropout/site_draw.h"

namespace orthant {
namespace {

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

}  // namespace

std::vector<NamedBinder> dropout_binders() {
  return {{"dropout", bind_dropout}, {"dropout_add", bind_dropout_add}};
}

}  // namespace orthant
