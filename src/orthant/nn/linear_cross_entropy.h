// The last product of a language model and its loss in one function, in chunks of tokens: logits exist for one chunk at
// a time.
//
// Note [Chunked logits]: where the gradient of the loss is known before it (Pass::loss_gradient), each chunk's logits
// become their gradient at once, and forward leaves the gradient of x and has added those of weight and bias. Otherwise
// forward keeps x and one number per token, and backward makes the logits again; a split backward makes them in both of
// its halves. All ways run the same products on the same chunks in the same order: they give the same bits.
#pragma once

#include "orthant/nn/loss.h"
#include "orthant/nn/pass.h"

namespace orthant::nn {

struct LinearCrossEntropyOptions {
  CrossEntropyOptions loss = {};  // consume_logits has no effect: nobody else sees them
  std::int64_t chunk_rows = 0;    // tokens of a chunk; 0: all in one
  Subject subject = {};  // of the loss's sums over tp: names of the unit and of its loss; they outlive the pass
};

// x [..., in], weight [out, in], bias [out] or nullptr, targets int64 [...] -> cross_entropy of linear(x, weight,
// bias), see loss.h. Where the weight is cut by columns the logits are cut likewise, and options.loss.classes says of
// how many; x is [own tokens, in] where the pass cuts tokens. Then Collective over tp: forward gathers tokens that are
// cut, and reduces three times per chunk; the gradient of x is summed once, in forward or backward.
at::Tensor linear_cross_entropy(const at::Tensor& x, Parameter& weight, Parameter* bias, const at::Tensor& targets,
                                const LinearCrossEntropyOptions& options, Pass& pass);

}  // namespace orthant::nn
