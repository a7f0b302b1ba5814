#include "orthant/ops/experts/capacity.h"

#include <ATen/ATen.h>

#include "orthant/ops/exchange/token_values.h"

namespace orthant::nn {
namespace {

// Where the rank's tokens of a row lie in the whole row.
at::Tensor own_places(const Pass& pass, const at::Tensor& like) {
  return own_columns(at::arange(pass.whole_sequence(), like.options()).unsqueeze(0), pass).view({-1});
}

// What all tokens of the microbatch's rows choose: [rows x whole sequence, per_token].
at::Tensor of_whole_rows(const at::Tensor& chosen, const Pass& pass, bool own) {
  const std::int64_t per_token = chosen.size(1);
  at::Tensor all = chosen;
  if (own) {
    const Range tokens = pass.own_tokens();
    all = at::zeros({pass.num_tokens(), per_token}, chosen.options());
    all.narrow(0, tokens.begin, tokens.size()).copy_(chosen);
    pass.tensor->sum(all, pass.subject())->wait();
  }
  if (pass.context == nullptr) return all;
  const at::Tensor whole = at::zeros({pass.rows, pass.whole_sequence(), per_token}, chosen.options());
  whole.index_copy_(1, own_places(pass, chosen), all.view({pass.rows, pass.sequence, per_token}));
  pass.context->sum(whole, pass.subject())->wait();
  return whole.view({-1, per_token});
}

// The row of each of these tokens.
at::Tensor rows_of(const at::Tensor& all, const Pass& pass) {
  if (pass.token_rows != nullptr) return pass.token_rows->row.view({-1});
  return at::arange(all.size(0), all.options()).div_(pass.whole_sequence(), "floor");
}

}  // namespace

at::Tensor slots_with_room(const at::Tensor& chosen, std::int64_t experts, std::int64_t capacity, const Pass& pass,
                           bool own) {
  const at::Tensor all = of_whole_rows(chosen, pass, own);
  // Slots of one row and expert beside each other, in their order.
  const at::Tensor key = (rows_of(all, pass).unsqueeze(1) * experts + all).view({-1});
  const auto [sorted, order] = at::sort(key, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor place = at::arange(key.size(0), key.options()) - at::searchsorted(sorted, sorted);
  at::Tensor room = at::empty({key.size(0)}, key.options().dtype(at::kBool));
  room = room.scatter_(0, order, place.lt(capacity)).view_as(all);
  if (pass.context != nullptr) {
    room = room.view({pass.rows, pass.whole_sequence(), all.size(1)}).index_select(1, own_places(pass, chosen));
    room = room.reshape({-1, all.size(1)});
  }
  if (!own) return room;
  const Range tokens = pass.own_tokens();
  return room.narrow(0, tokens.begin, tokens.size());
}

}  // namespace orthant::nn
