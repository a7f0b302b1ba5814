// Norms of the heads of queries and keys in a joined projection.
#include "orthant/ops/head_norm/head_norm.h"

#include <ATen/ATen.h>

#include "orthant/nn/binding.h"
#include "orthant/ops/attention/local_heads.h"

namespace orthant {
namespace {

nn::HeadNorms norms_of(const Binding& b, int qkv) {
  const Heads local = local_heads(b, qkv);
  return {local.heads, local.kv_heads, local.head_size, b.attributes().number("eps"), b.parameter(0), b.parameter(1)};
}

Step bind_head_norm(const Binding& b) {
  return [norms = norms_of(b, b.in(0)), x = b.in(0), y = b.out(0), statistics = b.out(1)](Frame& frame) {
    nn::Normalized out = nn::head_norm_forward(frame[x], norms);
    frame[y] = std::move(out.y);
    if (statistics >= 0) frame[statistics] = std::move(out.statistics);
  };
}

// in gy, what was normalised, its statistics.
Step bind_head_norm_back(const Binding& b) {
  const nn::NormParts parts = {b.out(0) >= 0, b.attributes().flag("weights")};
  return [norms = norms_of(b, b.in(1)), gy = b.in(0), x = b.in(1), statistics = b.in(2), gx = b.out(0),
          parts](Frame& frame) {
    at::Tensor out = nn::head_norm_backward(frame[gy], frame[x], frame[statistics], norms, parts);
    if (gx >= 0) frame[gx] = std::move(out);
  };
}

}  // namespace

std::vector<NamedBinder> head_norm_binders() {
  return {{"head_norm", bind_head_norm}, {"head_norm_back", bind_head_norm_back}};
}

}  // namespace orthant
