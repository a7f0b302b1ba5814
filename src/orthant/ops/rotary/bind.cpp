#include <ATen/ATen.h>

#include "orthant/ops/attention/heads_call.h"

namespace orthant {
namespace {

// In place. in x, starts of documents.
Step bind_rotary(const Binding& b) {
  return [call = HeadsCall(b, b.in(0), -1, -1, b.in(1)), x = b.in(0), y = b.out(0)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[x], frame.pass);
    nn::rotate_heads(heads, call.options(heads, frame));
    frame[y] = frame[x];
  };
}

// in gy, starts of documents.
Step bind_rotary_back(const Binding& b) {
  return [call = HeadsCall(b, b.in(0), -1, -1, b.in(1)), x = b.in(0), y = b.out(0)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[x], frame.pass);
    nn::AttentionOptions back = call.options(heads, frame);
    back.rotary.sin = back.rotary.sin.neg();
    nn::rotate_heads(heads, back);
    frame[y] = frame[x];
  };
}

}  // namespace

std::vector<NamedBinder> rotary_binders() {
  return {{"rotary", bind_rotary}, {"rotary_back", bind_rotary_back}};
}

}  // namespace orthant
