// Operations of programs over sizes alone: each takes and gives back the memory that its code in `interpret` and `nn`
// does, in the same order, counts the factors of dropout that it draws and, for a device, the bytes that kernels
// without products move. On the host narrow types are widened for kernels, and for products where the host has no
// product of that type. On a device kernels of our own serve most operations (nn/*_device.cpp) and ATen's formulas the
// others. Internal to this layer.
#pragma once

#include <array>
#include <set>
#include <string>
#include <vector>

#include "orthant/plan/estimate/counted_memory.h"
#include "orthant/plan/estimate/device_heads.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/plan/estimate/sized_run.h"
#include "orthant/program/sizes.h"

namespace orthant {

// Per element while ATen's formulas draw dropout on a device, by integers of 8 bytes, the factors among them; and bytes
// that they move: ten rounds of kernels over such integers (ops/dropout/dropout.cpp).
inline constexpr double kDrawnBytes = 36;
inline constexpr double kFormulaDrawMoves = 1040;

// Of each output of a product with a bias, beside the product's own.
inline constexpr double kBiasMoves = 2;

inline constexpr double kRowBlock = 256;  // rows whose column sums are added first: ops/linear/columns.h

// Rows of partial column sums that a device's RMSNorm leaves: ops/norm/norm_device.cpp.
inline constexpr double kNormBlocks = 896;

// Elements that a device reads and writes for each element of an operation: of the compute dtype; and of the wide one,
// where ATen's formulas compute it (nn/*_plain.cpp).
struct Moves {
  double narrow = 0, wide = 0;
};
inline constexpr Moves kPlainNormBack = {3, 27};

class OperationPrices {
 public:
  OperationPrices(const Program& program, const UnitSizes& sizes, const PlanSettings& settings,
                  const ContextPlace& place = {});

  // Runs it over `values`, which it fills; what it frees is the caller's.
  void run(const Operation& operation);

  Held& value(int number) { return values_[static_cast<std::size_t>(number)]; }
  Held take(int number) { return memory.take(bytes(number)); }
  double bytes(int number) const;
  void free(const std::vector<int>& numbers);
  // The most so far, with these handed to whoever made what they are gradients of: a part of a value is copied.
  double handed_back(const std::vector<int>& gradients);

  CountedMemory memory;
  double drawn = 0;  // factors of dropout, so far
  double moved = 0;  // bytes that kernels without products read and write on a device, so far

 private:
  struct Weight {
    double out = 0, in = 0;
  };

  double elements(int number) const;
  double channels(int number) const;
  double tokens(int number) const;
  Weight weight(const Operation& operation, std::size_t i = 0) const;
  bool owns(const Operation& operation) const;
  static bool drops(const Operation& operation);
  bool narrow() const { return element_ < wide_; }
  bool widens_products() const { return on_host_ && narrow() && settings_.widens_products; }
  bool serves_norm(double width) const;
  double loss_number() const { return on_host_ ? bytes_of(DType::float64) : wide_; }

  Held narrow_values(double count) { return memory.take(count * element_); }
  Held widened(const Held& x, double count) { return narrow() ? memory.take(count * wide_) : x; }
  Held narrowed(Held wide, double count) { return narrow() ? memory.take(count * element_) : wide; }
  // So many elements of the compute dtype, and of the wide one, are read or written.
  void move(double narrow_elements, double wide_elements = 0) {
    moved += narrow_elements * element_ + wide_elements * wide_;
  }
  void draw(double factors);

  // Of a host: what sums of columns take, as sum_columns() of ops/linear makes them.
  double column_sums(double rows, double width) const;
  // Of a host: wrapped numbers that ATen multiplies by.
  double wrapped_number() const {
    return bytes_of(DType::float64) + (wide_ == element_ && element_ == 8 ? 0 : element_);
  }
  // Over cp: of a batch field what belongs to the rank's own tokens, where that does not lie in one piece.
  Held own_tokens(int field);
  // Of a host: the ids of a lookup of these tokens, and how many they are.
  Held looked_up(const Operation& operation, std::size_t lookup, int value, bool cut);
  double num_ids(const Operation& operation, std::size_t lookup, int value, bool cut) const;
  bool picks_ids(const Operation& operation, std::size_t lookup, int value, bool cut) const;
  bool is_cut_table(const Operation& operation, std::size_t i) const;
  void plain_embedding(const Operation& operation);
  void plain_embedding_weight(const Operation& operation, bool cut, double ids);
  static bool is_tanh(const Operation& operation);

  // `at_once`: operands in another dtype are there to the end.
  Held product(double rows, double in, double out, bool at_once = false);
  // A product with a weight, which reads few rows from a packed copy.
  Held projected(double rows, const Weight& weight);
  double weight_bytes(double rows, const Weight& weight) const;
  void project(const Operation& operation);
  void product_back(const Operation& operation);
  void round_float8(const Operation& operation);
  Held rounded_weight(const Weight& w, double rows, double moves);
  void product_weight(const Operation& operation);
  void bias(const Operation& operation);
  void bias_weight(const Operation& operation);
  void add(const Operation& operation);

  // `weights`: a weight, or a weight and a bias.
  Held normed(const Held& x, double count, double width, int statistics, int weights);
  void norm(const Operation& operation);
  void dropout_add_norm(const Operation& operation);
  void norm_back(const Operation& operation);
  Held device_norm_back(const Operation& operation);
  std::array<double, 2> normed_heads(const Operation& operation, int qkv) const;  // a rank's queries and keys
  void head_norm(const Operation& operation);
  void head_norm_back(const Operation& operation);
  // Of a matrix of so many rows (out) and channels (in).
  void norm_rows_back(const Held& x, Held g, const Weight& matrix, bool inputs, bool weights);
  Held dropped(const Held& x, double count);
  void dropout_add(const Operation& operation);

  void attention(const Operation& operation, bool rotates);
  void attention_back(const Operation& operation, bool rotates);
  // What attention over cp makes: sums in the wide type, or already narrow.
  struct Sums {
    Held out = {}, lse = {}, met = {};
  };
  class ContextPrices;
  Sums context_attention(const Operation& operation);
  Held context_attention_back(const Operation& operation);
  bool is_over_context(const Operation& operation) const { return shares_rows(operation) && place_.sharing.degree > 1; }
  Held wide_tables(const Operation& operation);
  Held host_heads_back(const Operation& operation, double qkv);
  void draw_scores(const Operation& operation, double scores);
  double head_scratch(const Operation& operation) const;
  double fused_sums(const Operation& operation, double qkv, double out) const;
  double local_heads(const Operation& operation) const;
  double scores(const Operation& operation) const;

  Held activated(const Operation& operation, int from, int to);
  void activation_back(const Operation& operation);

  void add_rows(int made, int places);
  void combine(const Operation& operation);
  void dispatch_back(const Operation& operation);
  void lay_rows(const Operation& operation);
  void expert_activation(const Operation& operation);
  void expert_activation_back(const Operation& operation);

  void embedding(const Operation& operation);
  void embedding_weight(const Operation& operation);
  void waves(const Operation& operation);
  void scale(const Operation& operation);
  void cross_entropy(const Operation& operation);
  void cross_entropy_back(const Operation& operation);
  void head_loss(const Operation& operation);
  void head_loss_gradients(const Operation& operation);
  void head_loss_back(const Operation& operation);
  // So many tokens, behind others.
  struct Chunk {
    double rows = 0, before = 0;
  };
  struct LossGradients {
    double rows = 0;  // of the chunk
    bool inputs = false, weights = false;
    Held made = {};  // the gradient of all inputs, where a chunk before has begun it
  };
  std::vector<Chunk> worst_chunks(const Operation& operation, int x) const;
  double loss_scalars(const Chunk& chunk) const;
  Held loss_chunk(const Operation& operation, int x, double rows);
  Held loss_chunk_back(const Operation& operation, int x, Held logits, const LossGradients& wanted);
  double chunk_rows(const Operation& operation) const;
  double joined_bytes(double targets) const;
  void move_logits(double narrow_moves, double wide_moves, double logits);
  void start(const Operation& operation);

  const Program& program_;
  UnitSizes sizes_;
  const PlanSettings& settings_;
  ContextPlace place_;
  double element_;   // bytes of the compute dtype
  double wide_;      // in which narrower ones are computed
  double gradient_;  // of weights
  bool on_host_;
  bool kernels_;  // of a device: it has kernels for the compute dtype
  std::vector<Held> values_;
  std::set<int> parts_;  // values that lie in others
};

}  // namespace orthant
