// A language model's last product and its loss, in chunks of tokens: logits exist for one chunk at a time. Tokens are a
// matrix [all tokens, in], targets [all tokens]. Where logits are cut over tp, the loss of each chunk is Collective
// over it; gradients are Local, and that of the tokens is a summand.
//
// Note [Chunked logits]: where the gradient of the loss is known before it, each chunk's logits become their gradient
// at once: forward_chunks() leaves the gradient of x and has added those of weight and bias. Otherwise it leaves one
// number per token, and backward_chunks() makes the logits again; a split backward makes them in both of its halves.
// All ways run the same products on the same chunks in the same order: they give the same bits.
#pragma once

#include <algorithm>
#include <vector>

#include "orthant/nn/pass.h"
#include "orthant/ops/cross_entropy/cross_entropy.h"

namespace orthant::nn {

// What every chunk needs besides its rows.
struct HeadLoss {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  Pass* pass = nullptr;
  CrossEntropyOptions loss = {};  // nobody else sees the logits: they may be consumed
  std::int64_t chunk_rows = 0;    // 0: all in one
  Subject subject = {};

  bool trains() const { return weight->trainable() || (bias != nullptr && bias->trainable()); }
  at::Tensor logits(const at::Tensor& x) const;

  // action(first row, rows) of each chunk, in order; at least one.
  template <typename Action>
  void for_chunks(std::int64_t rows, const Action& action) const {
    const std::int64_t size = chunk_rows > 0 ? std::min(chunk_rows, rows) : rows;
    std::int64_t first = 0;
    do {
      action(first, std::min(size, rows - first));
      first += size;
    } while (first < rows);
  }
};

// Which gradients are made, and that of x so far: of this rank's classes.
struct HeadGradients {
  bool of_x = false;
  bool of_weights = false;
  at::Tensor d_loss = {};  // of which they are made, a scalar
  at::Tensor x = {};

  // Those of one chunk, whose logits become their gradient.
  void add_chunk(const HeadLoss& head, at::Tensor logits, const at::Tensor& lse, const at::Tensor& tokens,
                 const at::Tensor& targets, std::int64_t first);
};

// The loss; lse of all tokens where `lse` is given; gradients where those are.
at::Tensor forward_chunks(const HeadLoss& head, const at::Tensor& tokens, const at::Tensor& targets,
                          std::vector<at::Tensor>* lse, HeadGradients* gradients);

// Gradients from logits that are made again.
void backward_chunks(const HeadLoss& head, const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& lse,
                     HeadGradients& gradients);

}  // namespace orthant::nn
