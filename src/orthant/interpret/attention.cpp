// Rotation of queries and keys, and attention over the heads of a joined projection.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/interpret/binding.h"
#include "orthant/interpret/draws.h"
#include "orthant/interpret/local_heads.h"
#include "orthant/interpret/rotary_tables.h"
#include "orthant/nn/attention_heads.h"
#include "orthant/nn/projection.h"

namespace orthant {
namespace {

// What a rank's heads need besides tensors.
class HeadsCall {
 public:
  // `out`: the value that has a rank's heads side by side.
  HeadsCall(const Binding& b, int qkv, int out, int mask) : mask_(mask) {
    const Attributes& attributes = b.attributes();
    const LocalHeads local = local_heads(b, qkv);
    options_.head_size = local.head_size;
    options_.heads = local.heads;
    options_.kv_heads = local.kv_heads;
    if (out >= 0) options_.first_head = first_of(b.placement(out).dims.back(), b.tensor) / local.head_size;
    if (attributes.find("causal") != nullptr) {
      options_.causal = attributes.flag("causal");
      options_.window = attributes.integer("window");
      options_.dropout = attributes.number("p");
      if (options_.dropout > 0) options_.site = b.site();
    }
    if (attributes.find("theta") != nullptr) tables_.emplace(b);
  }

  nn::HeadsSetup setup(const at::Tensor& qkv, Frame& frame) {
    prepare(qkv, frame.pass);
    options_.key_mask = frame.get(mask_);
    return nn::heads_setup(qkv, options_, frame.pass);
  }

  // [tokens, channels] as rows of tokens.
  static at::Tensor by_rows(const at::Tensor& matrix, const nn::Pass& pass) {
    return matrix.view({pass.rows, pass.sequence, matrix.size(1)});
  }

  const nn::AttentionOptions& options(const at::Tensor& qkv, const nn::Pass& pass) {
    prepare(qkv, pass);
    return options_;
  }

 private:
  void prepare(const at::Tensor& qkv, const nn::Pass& pass) {
    if (tables_) options_.rotary = tables_->get(pass.sequence, qkv.options());
  }

  nn::AttentionOptions options_;
  int mask_;
  std::optional<RotaryTables> tables_;
};

// in qkv, mask; out attended, lse, bits; of the first form what was turned before them.
Step bind_attention(const Binding& b, bool rotates) {
  const std::size_t first = rotates ? 1 : 0;
  return [call = HeadsCall(b, b.in(0), b.out(first), b.in(1)), rotates, qkv = b.in(0), turned = rotates ? b.out(0) : -1,
          out = b.out(first), lse = b.out(first + 1), bits = b.out(first + 2)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[qkv], frame.pass);
    nn::HeadsOutput output = nn::heads_forward(heads, call.setup(heads, frame), rotates);
    if (turned >= 0) frame[turned] = frame[qkv];
    if (out >= 0) frame[out] = nn::as_matrix(output.out);
    if (lse >= 0) frame[lse] = std::move(output.lse);
    if (bits >= 0) frame[bits] = std::move(output.kept);
  };
}

// in gy, qkv, mask, attended, lse, bits.
Step bind_attention_back(const Binding& b) {
  return [call = HeadsCall(b, b.in(1), b.in(3), b.in(2)), gy = b.in(0), qkv = b.in(1), out = b.in(3), lse = b.in(4),
          bits = b.in(5), gx = b.out(0)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[qkv], frame.pass);
    const nn::HeadsOutput output = {HeadsCall::by_rows(frame[out], frame.pass), frame[lse], frame.get(bits)};
    const at::Tensor d_out = HeadsCall::by_rows(frame[gy], frame.pass);
    frame[gx] = nn::as_matrix(nn::heads_backward(heads, output, d_out, call.setup(heads, frame)));
  };
}

// In place.
Step bind_rotary(const Binding& b) {
  return [call = HeadsCall(b, b.in(0), -1, -1), x = b.in(0), y = b.out(0)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[x], frame.pass);
    nn::rotate_heads(heads, call.options(heads, frame.pass));
    frame[y] = frame[x];
  };
}

Step bind_rotary_back(const Binding& b) {
  return [call = HeadsCall(b, b.in(0), -1, -1), x = b.in(0), y = b.out(0)](Frame& frame) mutable {
    const at::Tensor heads = HeadsCall::by_rows(frame[x], frame.pass);
    nn::AttentionOptions back = call.options(heads, frame.pass);
    back.rotary.sin = back.rotary.sin.neg();
    nn::rotate_heads(heads, back);
    frame[y] = frame[x];
  };
}

}  // namespace

std::vector<NamedBinder> attention_binders() {
  return {{"attention", [](const Binding& b) { return bind_attention(b, false); }},
          {"rotary_attention", [](const Binding& b) { return bind_attention(b, true); }},
          {"attention_back", bind_attention_back},
          {"rotary_attention_back", bind_attention_back},
          {"rotary", bind_rotary},
          {"rotary_back", bind_rotary_back}};
}

}  // namespace orthant
