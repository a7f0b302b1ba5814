// What one unit of a model asks of one rank for one microbatch: products, bytes moved and kept, what it exchanges over
// tp and cp. From a resolved spec (what our runtime does), or from the closed forms of a stack. Time and memory are
// computed from this and nothing else, so that both kinds are priced alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/plan/estimate/plan_model.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/plan/estimate/sized_run.h"
#include "orthant/plan/stacks/stack.h"

namespace orthant {

enum class UnitRole { embedding, layer, head, other };

struct Product {
  double m = 0, n = 0, k = 0;
  bool float8 = false;  // in forward and for the gradient of its input
  double flops() const { return 2 * m * n * k; }
};

enum class ExchangeKind { all_reduce, all_gather, reduce_scatter, all_to_all, ring };
struct PricedExchange {
  ExchangeKind kind = ExchangeKind::all_reduce;
  Axis axis = Axis::tp;
  double bytes = 0;  // the tensor, the gathered output, the whole input; of a ring what passes through a rank
  bool beside_weights = false;  // of a backward: travels beside the products of weights' gradients
};

struct UnitWork {
  std::string name;
  UnitRole role = UnitRole::other;
  double parameters = 0;         // trained, that a tp rank has; a borrowed one where it is used, too
  double borrowed = 0;           // of those, the ones that another unit owns
  double expert_parameters = 0;  // of those, experts that lie on a mesh of their own: cut and summed over other axes

  std::vector<Product> products;     // of a forward
  bool fused_attention = true;       // scores are never whole
  double attention_flops = 0;        // of a forward, beside those: what is computed, half under a mask that leaves half
  double attention_bytes = 0;        // that a fused kernel reads and writes, where they are known
  double head_size = 0;              // of a device's fused attention; 0: its share of the peak does not depend on it
  bool drops_attention = false;      // of a device: by our kernels, which drop probabilities and hide keys
  double moved_bytes = 0;            // of a forward, by kernels without products
  double attention_moved_bytes = 0;  // of those, what `selective` makes again
  double backward_moved_bytes = 0;
  double weights_moved_bytes = 0;  // to add weights' gradients to those of other microbatches
  double forward_drawn = 0;        // factors of dropout
  double inputs_drawn = 0;         // again in a backward, what is made again included
  double weights_drawn = 0;        // again for the gradients of weights
  int kernels = 0;                 // of a forward, products included

  std::array<double, 4> kept_bytes = {};  // from forward to backward, by PlanRecompute; logits are not in it
  double logits_bytes = 0;                // the same for units other than transformer layers: logits, head, embedding
  double deferred_bytes = 0;              // from B to W where they are apart
  double forward_bytes = 0;               // alive besides at the worst moment of a forward
  double backward_bytes = 0;              // likewise of a backward, before anything is made again
  double remade_bytes = 0;                // made again at the begin of a backward; by settings.recompute
  double inputs_bytes = 0;                // as backward_bytes, of a backward without the gradients of weights
  double weights_bytes = 0;               // besides deferred_bytes, while those are made
  // Of a head that is the loss, too: kept, and besides it in forward and backward, where forward makes gradients.
  std::optional<SizedRun::InForward> in_forward = {};
  int chunks = 1;                 // of rows, in which its last product runs
  int logits_made = 1;            // how often a microbatch's logits are made: logits_made() below
  double remade_moved_bytes = 0;  // by kernels without products, where weights make them once more

  std::vector<PricedExchange> forward_exchanges;
  std::vector<PricedExchange> backward_exchanges;
  std::vector<PricedExchange> remade_exchanges;  // where `full` makes the forward again
  double output_bytes = 0;                       // that travel to the next stage and, as gradients, back
};

using ModelWork = std::vector<UnitWork>;  // in order

// How often a head that is the loss, too, makes a microbatch's logits: once where forward makes gradients, again in the
// backward of inputs where something else of the unit runs between, and once more where the backward is split.
inline constexpr int kMostLogitsMade = 3;
int logits_made(std::string_view schedule, int pp, std::int64_t microbatches);

// Of our runtime: `resolved` has the sizes of one microbatch.
ModelWork program_work(const GraphSpec& resolved, const PlanSettings& settings, ProgramCache* programs = nullptr);

// Of a stack's closed forms: embedding, layers, head. ConfigError for what they do not cover.
ModelWork formula_work(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings);

}  // namespace orthant
