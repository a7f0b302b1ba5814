// Attention over the heads of a joined projection, alone and together with the rotation in front of it.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/ops/attention/cached_attention.h"
#include "orthant/ops/attention/context_attention.h"
#include "orthant/ops/attention/heads_call.h"
#include "orthant/ops/linear/projection.h"

namespace orthant {
namespace {

// in qkv, mask, starts of documents; out attended, lse, bits; of the first form what was turned before them.
Step bind_attention(const Binding& b, bool rotates) {
  const std::size_t first = rotates ? 1 : 0;
  return [call = HeadsCall(b, b.in(0), b.out(first), b.in(1), b.in(2)), rotates, qkv = b.in(0),
          turned = rotates ? b.out(0) : -1, out = b.out(first), lse = b.out(first + 1),
          bits = b.out(first + 2)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[qkv], frame.pass);
    nn::HeadsOutput output = nn::heads_forward(heads, call.setup(heads, frame), rotates);
    if (turned >= 0) frame[turned] = frame[qkv];
    if (out >= 0) frame[out] = nn::as_matrix(output.out);
    if (lse >= 0) frame[lse] = std::move(output.lse);
    if (bits >= 0) frame[bits] = std::move(output.kept);
  };
}

// in qkv, mask, starts of documents; out attended, lse, none, what all_to_all keeps. Collective over cp.
Step bind_context_attention(const Binding& b) {
  return [call = HeadsCall(b, b.in(0), b.out(0), b.in(1), b.in(2)), qkv = b.in(0), out = b.out(0), lse = b.out(1),
          met = b.out(3)](Frame& frame) mutable {
    nn::ContextOutput output = nn::context_forward(frame[qkv], call.options(frame), frame.pass);
    frame[out] = std::move(output.out);
    if (lse >= 0) frame[lse] = std::move(output.lse);
    if (met >= 0) frame[met] = std::move(output.met);
  };
}

// in qkv; out attended. With the rotation in front of it the first output is what was turned.
Step bind_cached_attention(const Binding& b, bool rotates) {
  return [call = HeadsCall(b, b.in(0), b.out(rotates ? 1 : 0), -1, -1), qkv = b.in(0), turned = rotates ? b.out(0) : -1,
          out = b.out(rotates ? 1 : 0)](Frame& frame) mutable {
    if (frame.pass.cached == nullptr || frame.pass.keys == nullptr) {
      throw InternalError(fmt::format("unit {}: a program of a generation runs without a cache", frame.pass.unit));
    }
    frame[out] =
        nn::cached_attention(frame[qkv], call.cached_options(frame[qkv], frame), *frame.pass.cached, *frame.pass.keys);
    if (turned >= 0) frame[turned] = frame[qkv];
  };
}

// in gy, qkv or what all_to_all has kept, mask, attended, lse, none, starts of documents.
Step bind_context_attention_back(const Binding& b) {
  return [call = HeadsCall(b, b.in(1), b.in(3), b.in(2), b.in(6)), gy = b.in(0), qkv = b.in(1), out = b.in(3),
          lse = b.in(4), gx = b.out(0)](Frame& frame) mutable {
    const nn::ContextOutput output = {frame[out], frame[lse], frame[qkv]};
    frame[gx] = nn::context_backward(frame[qkv], output, frame[gy], call.options(frame), frame.pass);
  };
}

// in gy, qkv, mask, attended, lse, bits, starts of documents.
Step bind_attention_back(const Binding& b) {
  return [call = HeadsCall(b, b.in(1), b.in(3), b.in(2), b.in(6)), gy = b.in(0), qkv = b.in(1), out = b.in(3),
          lse = b.in(4), bits = b.in(5), gx = b.out(0)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[qkv], frame.pass);
    const nn::HeadsOutput output = {HeadsCall::by_rows(frame[out], frame.pass), frame[lse], frame.get(bits)};
    const at::Tensor d_out = HeadsCall::by_rows(frame[gy], frame.pass);
    frame[gx] = nn::as_matrix(nn::heads_backward(heads, output, d_out, call.setup(heads, frame)));
  };
}

}  // namespace

std::vector<NamedBinder> attention_binders() {
  return {{"attention",
           [](const Binding& b) {
             if (caches_keys(b.operation)) return bind_cached_attention(b, false);
             return shares_rows(b.operation) ? bind_context_attention(b) : bind_attention(b, false);
           }},
          {"rotary_attention",
           [](const Binding& b) {
             return caches_keys(b.operation) ? bind_cached_attention(b, true) : bind_attention(b, true);
           }},
          {"attention_back",
           [](const Binding& b) {
             return shares_rows(b.operation) ? bind_context_attention_back(b) : bind_attention_back(b);
           }},
          {"rotary_attention_back", bind_attention_back}};
}

}  // namespace orthant
