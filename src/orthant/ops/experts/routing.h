// Which experts take a token, and where its rows lie. Plain formulas for any dtype and device. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace orthant::nn {

// As ops::Experts has them.
struct RouteKind {
  std::int64_t per_token = 1;
  bool normalised = true;
  bool sigmoid = false;
  std::int64_t groups = 1;
  std::int64_t groups_taken = 1;
  double scaling = 1;
  std::int64_t capacity = 0;
};

// Of scores: float64 for float64 logits, else float32.
at::ScalarType score_type(const at::Tensor& logits);

// See Note [Routed rows] in ops/experts/rule.cpp.
struct Routes {
  at::Tensor weights;  // [tokens, per_token], float32 or float64
  at::Tensor chosen;   // [tokens, per_token]: experts, the highest score first
  at::Tensor places;   // [tokens, per_token]
  at::Tensor slots;    // [tokens x per_token]
  at::Tensor counts;   // [experts]: rows of each
};
// Weights and chosen. `bias` [experts] counts in the choice alone; undefined: none.
Routes choose(const at::Tensor& logits, const RouteKind& kind, const at::Tensor& bias = {});
// The rest. `room` [tokens, per_token]: slots that have rows; undefined: all.
void lay_rows(Routes& routes, std::int64_t experts, const at::Tensor& room = {});

// The gradient of the logits [tokens, experts], from that of the weights.
at::Tensor route_gradient(const at::Tensor& d_weights, const at::Tensor& logits, const at::Tensor& chosen,
                          const RouteKind& kind);

// Row r is the token of slot slots[r].
at::Tensor rows_of_tokens(const at::Tensor& x, const at::Tensor& slots, std::int64_t per_token);

// [rows, 1], from [tokens, per_token], and back. `drops`: some slots may have no row, and count as zeros.
at::Tensor weights_of_rows(const at::Tensor& weights, const at::Tensor& slots);
at::Tensor weights_of_slots(const at::Tensor& per_row, const at::Tensor& places, bool drops);

// For each token the sum of its rows.
at::Tensor sums_of_rows(const at::Tensor& rows, const at::Tensor& places, bool drops);

// Rows times their weights [rows, 1], in place.
at::Tensor weigh_rows(at::Tensor rows, const at::Tensor& weights);
// For each row the sum of products, summed as `type`: [rows, 1].
at::Tensor row_products(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

}  // namespace orthant::nn
