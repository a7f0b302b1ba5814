#include "orthant/ops/experts/routing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "orthant/ops/experts/expert_rows.h"

namespace orthant::nn {
namespace {

// Sigmoids of all that take a token may be next to nothing.
constexpr double kLeastSum = 1e-20;

at::Tensor scores_of(const at::Tensor& logits, const RouteKind& kind) {
  const at::Tensor wide = logits.to(score_type(logits));
  return kind.sigmoid ? at::sigmoid(wide) : at::softmax(wide, 1);
}

at::Tensor sum_of(const at::Tensor& taken, const RouteKind& kind) {
  const at::Tensor sum = taken.sum(1, /*keepdim=*/true);
  return kind.sigmoid ? sum.add_(kLeastSum) : sum;
}

// Of equal ones the first.
at::Tensor best(const at::Tensor& scores, std::int64_t count) {
  const auto order = std::get<1>(at::sort(scores, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  return order.narrow(1, 0, count).contiguous();
}

// Experts of groups that may not take the token have no score.
void leave_groups(at::Tensor& choice, const RouteKind& kind) {
  const std::int64_t size = choice.size(1) / kind.groups;
  const at::Tensor grouped = choice.view({choice.size(0), kind.groups, size});
  const at::Tensor sums = std::get<0>(grouped.topk(std::min<std::int64_t>(2, size), -1)).sum(-1);
  at::Tensor left = at::ones_like(sums, at::kBool);
  left.scatter_(1, best(sums, kind.groups_taken), false);
  choice = grouped.masked_fill(left.unsqueeze(-1), -std::numeric_limits<double>::infinity()).view_as(choice);
}

// How often each of [0, experts) is among sorted numbers.
at::Tensor counts_of(const at::Tensor& sorted, std::int64_t experts) {
  at::Tensor counts =
      at::searchsorted(sorted, at::arange(experts, sorted.options()), /*out_int32=*/false, /*right=*/true);
  if (experts > 1) counts.narrow(0, 1, experts - 1).sub_(counts.narrow(0, 0, experts - 1).clone());
  return counts;
}

}  // namespace

at::ScalarType score_type(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Routes choose(const at::Tensor& logits, const RouteKind& kind, const at::Tensor& bias) {
  const at::Tensor scores = scores_of(logits, kind);
  at::Tensor choice = bias.defined() ? scores + bias.to(scores.scalar_type()) : scores;
  if (kind.groups > 1) leave_groups(choice, kind);
  Routes routes;
  routes.chosen = best(choice, kind.per_token);
  routes.weights = scores.gather(1, routes.chosen);
  if (kind.normalised) routes.weights.div_(sum_of(routes.weights, kind));
  if (kind.scaling != 1) routes.weights.mul_(kind.scaling);
  return routes;
}

void lay_rows(Routes& routes, std::int64_t experts, const at::Tensor& room) {
  const std::int64_t slots = routes.chosen.numel();
  {
    // Dropped slots lie behind the last expert's.
    const at::Tensor by_slot = room.defined() ? routes.chosen.masked_fill(room.logical_not(), experts).view({slots})
                                              : routes.chosen.view({slots});
    at::Tensor sorted;
    std::tie(sorted, routes.slots) = at::sort(by_slot, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    routes.counts = counts_of(sorted, experts);
  }
  routes.places = at::empty_like(routes.slots);
  routes.places.scatter_(0, routes.slots, at::arange(slots, routes.slots.options()));
  routes.places = routes.places.view_as(routes.chosen);
  if (!room.defined()) return;
  routes.places.masked_fill_(room.logical_not(), -1);
  // On a device nobody waits for how many there are: what lies behind is not read.
  if (!routes.slots.is_cpu()) return;
  routes.slots = routes.slots.narrow(0, 0, routes.counts.sum().item<std::int64_t>()).clone();
}

at::Tensor route_gradient(const at::Tensor& d_weights, const at::Tensor& logits, const at::Tensor& chosen,
                          const RouteKind& kind) {
  const at::Tensor scores = scores_of(logits, kind);
  at::Tensor d_chosen = kind.scaling != 1 ? d_weights * kind.scaling : d_weights;
  if (kind.normalised) {
    const at::Tensor taken = scores.gather(1, chosen);
    const at::Tensor sum = sum_of(taken, kind);
    d_chosen = (d_chosen - (d_chosen * taken).sum(1, /*keepdim=*/true) / sum) / sum;
  }
  const at::Tensor d_scores = at::zeros_like(scores).scatter_(1, chosen, d_chosen);
  if (kind.sigmoid) return (d_scores * scores * (1 - scores)).to(logits.scalar_type());
  const at::Tensor d_logits = scores * (d_scores - (d_scores * scores).sum(1, /*keepdim=*/true));
  return d_logits.to(logits.scalar_type());
}

at::Tensor rows_of_tokens(const at::Tensor& x, const at::Tensor& slots, std::int64_t per_token) {
  if (device::serves_expert_rows(x)) return device::rows_of_tokens(x, slots, per_token);
  return x.index_select(0, at::div(slots, per_token, "floor"));
}

at::Tensor weights_of_rows(const at::Tensor& weights, const at::Tensor& slots) {
  return weights.view({-1, 1}).index_select(0, slots);
}

namespace {

// Rows of so many slots, zeros for those that were dropped, where there may be some.
at::Tensor rows_at(const at::Tensor& rows, const at::Tensor& places, bool drops) {
  if (!drops) return rows.index_select(0, places);
  const at::Tensor there = places.ge(0);
  if (rows.size(0) == 0) return at::zeros({places.size(0), rows.size(1)}, rows.options());
  return rows.index_select(0, places.clamp_min(0)).masked_fill_(there.logical_not().unsqueeze(1), 0);
}

}  // namespace

at::Tensor weights_of_slots(const at::Tensor& per_row, const at::Tensor& places, bool drops) {
  return rows_at(per_row, places.view({-1}), drops).view_as(places);
}

// Slot by slot, so that sums have one order and no tensor of all rows is made.
at::Tensor sums_of_rows(const at::Tensor& rows, const at::Tensor& places, bool drops) {
  if (device::serves_expert_rows(rows)) return device::sums_of_rows(rows, places);
  at::Tensor sum;
  for (std::int64_t j = 0; j < places.size(1); ++j) {
    at::Tensor part = rows_at(rows, places.select(1, j), drops);
    sum = j == 0 ? std::move(part) : sum.add_(part);
  }
  return sum;
}

at::Tensor weigh_rows(at::Tensor rows, const at::Tensor& weights) {
  return rows.mul_(weights.to(rows.scalar_type()));
}

at::Tensor row_products(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return (a * b).sum(1, /*keepdim=*/true, type);
}

}  // namespace orthant::nn
