// The functions of `nn` over sizes alone, for unit_run.cpp: each takes and gives back the memory that its namesake
// does, in the same order, and counts the factors of dropout that it draws. On the host narrow types are widened for
// kernels, and for products where the host has no product of that type. On a device kernels of our own serve most
// functions (nn/*_device.cpp) and ATen's formulas the others; there the bytes that both move are counted, too, except
// for those of scores. Internal to this layer.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "orthant/plan/layer_heads.h"
#include "orthant/plan/plan_settings.h"

namespace orthant {

// Bytes that count as allocated while some Held refers to them.
using Held = std::shared_ptr<void>;

class CountedMemory {
 public:
  Held take(double bytes) {
    now_ += bytes;
    if (now_ > peak_) peak_ = now_;
    return {this, [this, bytes](void*) { now_ -= bytes; }};
  }
  double now() const { return now_; }
  double peak() const { return peak_; }
  void reset_peak() { peak_ = now_; }

 private:
  double now_ = 0;
  double peak_ = 0;
};

// Bytes of the longest row that a device's norms take: of RMSNorm 32 warps of lanes with two vectors of 16 bytes each,
// of LayerNorm 16 warps with four.
inline constexpr double kMostNormBytes = 32 * 32 * 2 * 16;

// Per element while ATen's formulas draw dropout on a device, by integers of 8 bytes, the factors among them; and bytes
// that they move: ten rounds of kernels over such integers (nn/dropout_grid.cpp).
inline constexpr double kDrawnBytes = 36;
inline constexpr double kFormulaDrawMoves = 1040;

// Elements that a device reads and writes for each element of a function: of the compute dtype; and of the wide one,
// where ATen's formulas compute it.
struct Moves {
  double narrow = 0, wide = 0;
};
// Of each output of a product with a bias, beside the product's own.
inline constexpr double kBiasMoves = 2;
// Of each logit: its loss, and its gradient in place.
inline constexpr Moves kLossMoves = {1, 4};
inline constexpr Moves kGradientMoves = {2, 10};

// Sizes of a unit on one tp rank.
struct FunctionSizes {
  double element = 4;   // bytes of the compute dtype
  double wide = 4;      // in which narrower ones are computed
  double gradient = 4;  // of weights
  double rows = 1;
  double sequence = 1;
  double own = 1;  // tokens between products
  double hidden = 1;
  double heads = 1;         // of this rank
  double norm_numbers = 2;  // statistics per token
  bool on_host = true;
  bool kernels = false;                  // of a device: it has kernels for the compute dtype
  HeadsBy heads_by = HeadsBy::formulas;  // of a device
  bool repeatable = false;               // of a library's heads: backward sums in one order
  bool rotates = false;                  // queries and keys, by their positions
  bool widens = true;                    // a host makes products of narrow types in the wide one
  bool cuts_tokens = false;              // sequence parallelism
  bool regathers = false;
  bool selective = false;     // attention's heads are made again
  bool drops_scores = false;  // attention's probabilities
  double seen = 1;            // share of the scores that a mask leaves

  double tokens() const { return rows * sequence; }
  bool narrow() const { return element < wide; }
  // As nn::device::serves_rms_norm() and serves_layer_norm().
  bool serves_norm() const { return kernels && hidden * element <= kMostNormBytes; }
  bool widens_products() const { return on_host && narrow() && widens; }
  bool widens_gradients() const { return on_host && gradient < wide && widens; }
};

// A weight [out, in] of this rank; `cut` is the dim that tp cuts, -1 none.
struct SizedWeight {
  double out = 0;
  double in = 0;
  int cut = -1;
  bool trainable = true;
  bool bias = false;
};

class UnitFunctions {
 public:
  explicit UnitFunctions(const FunctionSizes& sizes) : sizes_(sizes) {}

  struct Norm {
    Held x, statistics;
  };
  struct Linear {
    Held x;
  };
  struct Attention {
    Held qkv, out, statistics, bits;
  };
  struct Loss {  // of a head that is the loss, too: x of all tokens and a number per token, or the gradient of x
    Held x, numbers, gradient;
  };

  bool records = true;      // forward keeps for backward
  bool defers = false;      // backward leaves the gradients of weights to run_deferred()
  bool in_forward = false;  // a loss makes gradients in its forward

  Held values(double tokens, double channels) { return memory.take(tokens * channels * sizes_.element); }
  Held own_values() { return values(sizes_.own, sizes_.hidden); }

  Held norm(const Held& x, Norm& kept);
  // `dropped`: what dropout leaves of it, too. `adds`: another gradient to it, in the same pass.
  Held norm_back(const Held& gy, Norm kept, Held* dropped = nullptr, bool adds = false);
  // `sum`: what is normalized, too.
  Held dropout_add_norm(const Held& x, bool drops, Norm& kept, Held* sum = nullptr);
  Held dropout(const Held& x, double elements);
  // residual + dropout(x).
  Held dropout_add(const Held& x, double elements);

  Held linear(const Held& x, const SizedWeight& weight, Linear& kept);
  Held linear_back(const Held& gy, Linear kept, const SizedWeight& weight);
  Held attention(const Held& qkv, const SizedWeight& qkv_weight, const SizedWeight& weight, Attention& kept);
  Held attention_back(const Held& gy, Attention kept, const SizedWeight& qkv_weight, const SizedWeight& weight);
  // `inner`: channels of x; the weight takes as many, or half where a gate is among them.
  Held activation_linear(const Held& x, double inner, const SizedWeight& weight, bool drops, Linear& kept);
  Held activation_linear_back(const Held& gy, Linear kept, double inner, const SizedWeight& weight, bool drops);
  Held whole_channels(double own_words, double words);
  // `rows`: tokens of a chunk. `joins`: each tp rank has classes of its own.
  void linear_loss(const Held& x, const SizedWeight& weight, double rows, bool joins, Loss& kept);
  Held linear_loss_back(Loss kept, const SizedWeight& weight, double rows);

  // The gradient of a weight holds these until it is made by `make`.
  void defer(std::vector<Held> held, std::function<void()> make = {}) {
    deferred_.push_back({std::move(held), std::move(make)});
  }
  void run_deferred();

  void for_a_while(double bytes) { memory.take(bytes); }
  // So many elements of the compute dtype, and of the wide one, are read or written.
  void move(double elements, double wide_elements = 0) {
    moved += elements * sizes_.element + wide_elements * sizes_.wide;
  }

  void move_logits(const Moves& moves, double logits) {
    move(moves.narrow * logits, sizes_.kernels ? 0 : moves.wide * logits);
  }

  CountedMemory memory;
  double drawn = 0;  // factors of dropout, so far
  double moved = 0;  // bytes that kernels without products read and write on a device, so far

 private:
  struct Deferred {
    std::vector<Held> held;
    std::function<void()> make;
  };
  struct Heads {
    Held out, statistics, bits;
  };

  Held widened(const Held& x, double elements) { return sizes_.narrow() ? memory.take(elements * sizes_.wide) : x; }
  Held narrowed(Held wide, double elements) { return sizes_.narrow() ? memory.take(elements * sizes_.element) : wide; }
  Held product(double tokens, double in, double out);       // of a forward
  Held product_back(double tokens, double out, double in);  // gradient of the input
  Held activated(const Held& x, double inner, double width, bool drops);
  Held project_out(const SizedWeight& weight);
  // A product adds itself to copies of the bias: written, and read by it.
  void move_bias(double tokens, const SizedWeight& weight) {
    if (weight.bias) move(kBiasMoves * tokens * weight.out);
  }
  Held all_tokens(const Held& own, const SizedWeight& row_weight);
  void add_weight(std::vector<Held> held, double tokens, const SizedWeight& weight);
  double weight_bytes(double tokens, const SizedWeight& weight) const;
  double loss_number() const { return sizes_.on_host ? bytes_of(DType::float64) : sizes_.wide; }
  Held loss_chunk_back(Held logits, double rows, double all, const SizedWeight& weight, bool inputs, bool weights);
  Held loss_chunks_back(double rows, const SizedWeight& weight, bool inputs, bool weights);
  double norm_sums() const;
  Held device_norm_back(const Held& gy, Norm kept, Held* dropped, bool adds);
  double scores() const { return sizes_.tokens() * sizes_.sequence * sizes_.heads; }
  double head_scratch(double channels) const;
  void draw(double factors);
  void draw_scores();
  // A device's activation of one input drops what it makes, too.
  bool drops_in_pass(double inner, double width) const { return sizes_.kernels && inner == width; }
  Heads heads_forward(double qkv_channels, double channels);
  Held heads_back(double qkv_channels, double channels);
  double fused_sums(double qkv_channels, double channels) const;

  FunctionSizes sizes_;
  std::vector<Deferred> deferred_;
};

}  // namespace orthant
