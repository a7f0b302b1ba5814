// The pieces of a UnitCost, and the values and units that all models share.
//
// Note [What a cost counts]: FLOPs of matrix products (2 m n k) and of attention's two products; norms, activations,
// lookups, residual sums and losses count 0. Attention's backward is twice its forward, all of it in input_flops. A
// unit whose inputs need no gradient has no input_flops for its first product. Kept bytes are what the runtime's
// functions keep from forward to backward: activations in the compute dtype, row statistics of norms and attention in
// float32 (float64 when computing in it). Ids and masks are not counted. Deferred bytes are what the functions queue
// for the gradients of their weights when the backward is split: input and output gradient of every product and norm
// (with the norm's statistics), the output gradient of a lookup. Of a unit that is frozen in part both are bounds.
//
// Note [What a rank keeps]: with tensor parallelism a cost is that of one tp rank, the one with the largest parts, as
// the model declares its splits (`parallel.plan` with `replicate` is not priced). Heads, inner channels and words are
// cut; between products (inputs of norms, residual sums, their statistics) a rank has all tokens, or its own under
// sequence parallelism. A column product keeps its input: all tokens, which under sequence parallelism are a gathered
// copy, or its own tokens when they are gathered again in backward. Where tokens are cut, a row product waits for its
// weights with the gradient of its own tokens, which its bias takes, and with the gathered one of all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/specs/work_size.h"

namespace orthant {

// Bytes of an activation, or of row statistics, of that many elements. ConfigError on what no machine holds.
class KeptBytes {
 public:
  explicit KeptBytes(DType compute) : compute_(compute) {}
  std::int64_t activation(const Shape& shape) const;
  std::int64_t statistics(const Shape& shape) const;

 private:
  DType compute_;
};

// What one tp rank has of a microbatch. See Note [What a rank keeps].
class RankWork {
 public:
  explicit RankWork(const WorkSize& work) : work_(work) {}

  // Of things that are cut over tp: heads, inner channels, words. At least one, for key/value heads are held in copies.
  std::int64_t part(std::int64_t size) const;
  double num_tokens() const { return static_cast<double>(work_.rows) * static_cast<double>(work_.sequence); }
  double num_own_tokens() const;  // that it has between products

  Shape all(std::int64_t channels) const { return {work_.rows, work_.sequence, channels}; }
  Shape own(std::int64_t channels) const;
  Shape column_input(std::int64_t channels) const;  // as a column product keeps it
  Shape gathered(std::int64_t channels) const;      // a copy of all tokens beside own ones; empty where own are all
  Shape value(const ValueSpec& spec) const;         // as it lies between units
  Shape parameter(const ParameterSpec& spec) const;

 private:
  bool cuts_tokens() const { return work_.tensor.degree > 1 && work_.tensor.sequence_parallel; }

  WorkSize work_;
};

// Sums, norm statistics and losses: float32, or float64 when computing in it.
DType statistics_dtype(DType compute);

double product_flops(double m, double n, double k);

// Forward of attention over `sequence` positions: scores and weighted sum; half of it when causal.
double attention_flops(double rows, double heads, double sequence, double head_size, bool causal);

// A unit of products with `product` FLOPs in forward, the same again for inputs and for weights.
UnitCost product_cost(double product);

void keep_always(UnitCost& cost, std::int64_t bytes);  // whatever is recomputed

// Deferred bytes of a transformer layer: two norms of `hidden` channels with `statistics` numbers per token in all, and
// two column and two row products, which have `inner` channels on their cut sides together.
std::int64_t deferred_layer_bytes(const RankWork& rank, const KeptBytes& kept, std::int64_t hidden, std::int64_t inner,
                                  std::int64_t statistics);

// Of the product that makes logits of `hidden` channels.
std::int64_t deferred_logits_bytes(const RankWork& rank, const KeptBytes& kept, std::int64_t hidden,
                                   std::int64_t words);

ValueSpec batch_field(std::string name, Shape shape, DType dtype);
ValueSpec activation_value(std::string name, Shape shape, DType compute);

// A unit with its names; the rest is the caller's.
UnitSpec make_unit(std::string name, std::string kind, std::vector<std::string> inputs,
                   std::vector<std::string> outputs);

// Adds unit "loss" (cross_entropy) of values "logits" and "labels", which exist, and its value "loss". Without weights
// all classes count alike.
void append_cross_entropy(GraphSpec& spec, const WorkSize& work, std::vector<double> class_weights = {});

}  // namespace orthant
