#include "orthant/ops/experts/router_loss.h"

#include <ATen/ATen.h>

#include "orthant/ops/experts/routing.h"

namespace orthant::nn {
namespace {

// The row of each token, counted in the microbatch, and how many there are.
struct TokenPlaces {
  at::Tensor row;
  std::int64_t rows;

  TokenPlaces(const Pass& pass, std::int64_t tokens, bool own, const at::Tensor& like) : rows(pass.rows) {
    const std::int64_t first = own ? pass.own_tokens().begin : 0;
    if (pass.token_rows != nullptr) {  // what lies behind the last row is a row more
      row = pass.token_rows->row.view({-1}).narrow(0, first, tokens);
      rows = pass.token_rows->picked.size(0) + 1;
      return;
    }
    const auto options = at::TensorOptions().dtype(at::kLong).device(like.device());
    row = at::arange(first, first + tokens, options).div_(pass.sequence, "floor");
  }
};

// 1 for tokens whose label counts.
at::Tensor counted(const at::Tensor& labels, at::ScalarType type) {
  return labels.ge(0).to(type);
}

at::Tensor shares_of_scores(const at::Tensor& logits, bool sigmoid) {
  if (!sigmoid) return at::softmax(logits, 1);
  const at::Tensor scores = at::sigmoid(logits);
  return scores / scores.sum(1, /*keepdim=*/true);
}

}  // namespace

RouterLossForward router_loss(const at::Tensor& logits, const at::Tensor& chosen, const at::Tensor& labels,
                              const RouterLossKind& kind, const Pass& pass, bool own) {
  const at::Tensor wide = logits.to(score_type(logits));
  const std::int64_t experts = wide.size(1);
  const TokenPlaces places(pass, wide.size(0), own, wide);
  const at::Tensor counts = counted(labels, wide.scalar_type());
  // Per row the slots that each expert took, then the tokens: whole numbers, whose sums are exact in any order.
  const at::Tensor numbers = at::zeros({places.rows, experts + 1}, wide.options());
  const at::Tensor flat = numbers.view({-1});
  const at::Tensor begin = places.row * (experts + 1);
  for (std::int64_t j = 0; j < chosen.size(1); ++j) flat.scatter_add_(0, begin + chosen.select(1, j), counts);
  flat.scatter_add_(0, begin + experts, counts);
  RouterLossForward made;
  made.taken = numbers.narrow(1, 0, experts).sum(0).to(at::kLong);
  if (own) pass.tensor->sum(numbers, pass.subject())->wait();
  if (pass.context != nullptr) pass.context->sum(numbers, pass.subject())->wait();
  made.shares =
      numbers.narrow(1, 0, experts) * static_cast<double>(experts) / numbers.narrow(1, experts, 1).clamp_min(1);
  at::Tensor per_token = at::zeros({wide.size(0)}, wide.options());
  if (kind.balance > 0) {
    const at::Tensor products = shares_of_scores(wide, kind.sigmoid).mul_(made.shares.index_select(0, places.row));
    per_token.add_(products.sum(1), kind.balance);
  }
  if (kind.z > 0) per_token.add_(at::logsumexp(wide, {1}).square_(), kind.z);
  made.loss = per_token.mul_(counts).sum();
  return made;
}

at::Tensor router_loss_gradient(const at::Tensor& d_loss, const at::Tensor& logits, const at::Tensor& labels,
                                const at::Tensor& shares, const RouterLossKind& kind, const Pass& pass, bool own) {
  const at::Tensor wide = logits.to(score_type(logits));
  const TokenPlaces places(pass, wide.size(0), own, wide);
  const at::Tensor softmax = at::softmax(wide, 1);
  at::Tensor gradient = at::zeros_like(wide);
  if (kind.balance > 0) {
    const at::Tensor weights = shares.index_select(0, places.row).mul_(kind.balance);
    const at::Tensor parts = kind.sigmoid ? shares_of_scores(wide, true) : softmax;
    const at::Tensor d_parts = weights - (weights * parts).sum(1, /*keepdim=*/true);
    gradient.add_(parts * d_parts * (kind.sigmoid ? 1 - at::sigmoid(wide) : at::ones({}, wide.options())));
  }
  if (kind.z > 0) gradient.add_(softmax * at::logsumexp(wide, {1}, /*keepdim=*/true), 2 * kind.z);
  gradient.mul_(counted(labels, wide.scalar_type()).mul_(d_loss.to(wide.scalar_type())).unsqueeze(1));
  return gradient.to(logits.scalar_type());
}

}  // namespace orthant::nn
