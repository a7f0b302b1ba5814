// Attention of rows that are cut over cp: this rank has the queries of its own positions, and keys and values of the
// others come to it. Each way is the same softmax; they differ in what travels. See Note [Context cuts] in
// graph/context.h. Collective over cp.
//
// Note [Context attention]: a rank's tokens of a row are one or two pieces, so that queries of one rank and keys of
// another meet in up to four blocks (attention_blocks.h); blocks that a mask hides are neither computed nor sent for.
//   ring        in step i a rank sends its keys and values to the i-th rank after it, as far as that one sees them, and
//               receives those of the i-th before it, while it computes with those of the step before. Backward does
//               the same and sends the gradients back; their owner adds them in the order of the steps.
//   gather      one gather of keys and values; backward gathers again and scatters the sum of gradients.
//   all_to_all  queries, keys and values of all tokens for a part of the heads, cut by the balanced rule; the output
//               returns to the tokens. A rank whose heads do not fill whole groups has a copy of the key/value head for
//               each query head. Backward keeps what arrived, and receives gradients and delta of its heads.
#pragma once

#include "orthant/ops/attention/attention_blocks.h"

namespace orthant::nn {

struct ContextOutput {
  at::Tensor out = {};  // [own tokens, heads * head_size], qkv's dtype
  at::Tensor lse = {};  // of attention_blocks.h: of own tokens, or (all_to_all) of own heads
  at::Tensor met = {};  // all_to_all: the joined projection of own heads, [tokens of whole rows, ...]; else undefined
};

// qkv [own tokens, (heads + 2 kv_heads) * head_size], rotated; options.key_mask has whole rows.
ContextOutput context_forward(const at::Tensor& qkv, const AttentionOptions& options, const Pass& pass);

// The gradient of qkv. `qkv`: as forward had it; of all_to_all output.met serves, and qkv is not read.
at::Tensor context_backward(const at::Tensor& qkv, const ContextOutput& output, const at::Tensor& d_out,
                            const AttentionOptions& options, const Pass& pass);

}  // namespace orthant::nn
