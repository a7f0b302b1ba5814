#include "orthant/ops/exchange/token_values.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/ops/linear/projection.h"

namespace orthant::nn {
namespace {

// What belongs to own positions along a dim of the whole sequence.
at::Tensor own_part_of(const at::Tensor& whole, int dim, const OwnPositions& own) {
  const auto piece = [&](Range range) { return whole.narrow(dim, range.begin, range.size()); };
  if (own.pieces[1].empty()) return piece(own.pieces[0]);
  return at::cat({piece(own.pieces[0]), piece(own.pieces[1])}, dim);
}

// Of a pass that cuts tokens: which rows have their first token on this rank, and where.
struct FirstTokens {
  std::int64_t rows, sequence;
  Range own;   // tokens
  Range held;  // rows

  explicit FirstTokens(const Pass& pass) : rows(pass.rows), sequence(pass.sequence), own(pass.own_tokens()) {
    const auto row_from = [&](std::int64_t token) { return (token + sequence - 1) / sequence; };
    held = {row_from(own.begin), row_from(own.end)};
  }

  at::Tensor of_tokens(const at::Tensor& x) const {
    return x.slice(0, held.begin * sequence - own.begin, std::nullopt, sequence);
  }
  at::Tensor of_rows(const at::Tensor& y) const { return y.narrow(0, held.begin, held.size()); }
};

// Of unpadded rows: those whose first token is on this rank, and which of its tokens that is.
struct UnpaddedFirsts {
  std::int64_t rows;
  Range own;
  at::Tensor held, tokens;

  explicit UnpaddedFirsts(const Pass& pass) : rows(pass.token_rows->picked.size(0)), own(pass.own_tokens()) {
    const at::Tensor& picked = pass.token_rows->picked;
    held = picked.ge(own.begin).logical_and_(picked.lt(own.end)).nonzero().flatten();
    tokens = picked.index_select(0, held).sub_(own.begin);
  }
};

}  // namespace

at::Tensor part_of_rows(const at::Tensor& whole, const OwnPositions& own) {
  return own_part_of(whole, 1, own);
}

void place_in_rows(const at::Tensor& whole, const OwnPositions& own, const at::Tensor& part) {
  std::int64_t token = 0;
  for (const Range piece : own.pieces) {
    whole.narrow(1, piece.begin, piece.size()).copy_(part.narrow(1, token, piece.size()));
    token += piece.size();
  }
}

at::Tensor own_columns(const at::Tensor& field, const Pass& pass) {
  return pass.context == nullptr ? field : own_part_of(field, 1, pass.positions);
}

at::Tensor own_table_rows(const at::Tensor& table, const Pass& pass) {
  return pass.context == nullptr ? table : own_part_of(table, 0, pass.positions);
}

at::Tensor whole_sequences(const at::Tensor& x, const Pass& pass) {
  if (pass.context == nullptr) return x;
  BelowAutograd below;
  const std::int64_t rows = x.size(0), all = pass.positions.all;
  at::DimVector shape(x.sizes());
  const std::int64_t width = c10::multiply_integers(x.sizes().slice(2));
  std::vector<std::int64_t> counts;
  for (int c = 0; c < pass.context->degree(); ++c)
    counts.push_back(rows * pass.context->positions(all, c).size() * width);
  const at::Tensor arrived = at::empty({rows * all * width}, x.options());
  pass.context->gather(arrived, x.contiguous(), counts)->wait();
  const at::Tensor whole = at::empty({rows, all, width}, x.options());
  std::int64_t first = 0;
  for (int c = 0; c < pass.context->degree(); ++c) {
    const OwnPositions own = pass.context->positions(all, c);
    const at::Tensor part =
        arrived.narrow(0, first, counts[static_cast<std::size_t>(c)]).view({rows, own.size(), width});
    first += counts[static_cast<std::size_t>(c)];
    place_in_rows(whole, own, part);
  }
  shape[1] = all;
  return whole.view(shape);
}

at::Tensor held_first_tokens(const at::Tensor& x, const Pass& pass) {
  if (pass.token_rows != nullptr) {
    if (!pass.cuts_tokens()) return x.index_select(0, pass.token_rows->picked);
    const UnpaddedFirsts first(pass);
    return at::zeros({first.rows, x.size(1)}, x.options()).index_copy_(0, first.held, x.index_select(0, first.tokens));
  }
  if (!pass.cuts_tokens()) return x.view({pass.rows, pass.sequence, x.size(1)}).select(1, 0).contiguous();
  const FirstTokens first(pass);
  const at::Tensor y = at::zeros({first.rows, x.size(1)}, x.options());
  if (!first.held.empty()) first.of_rows(y).copy_(first.of_tokens(x));
  return y;
}

at::Tensor first_tokens_gradient(const at::Tensor& gy, const Pass& pass) {
  if (pass.token_rows != nullptr) {
    if (!pass.cuts_tokens()) {
      return at::zeros({pass.num_tokens(), gy.size(1)}, gy.options()).index_copy_(0, pass.token_rows->picked, gy);
    }
    const UnpaddedFirsts first(pass);
    return at::zeros({first.own.size(), gy.size(1)}, gy.options())
        .index_copy_(0, first.tokens, gy.index_select(0, first.held));
  }
  if (!pass.cuts_tokens()) {
    const at::Tensor all = at::zeros({pass.rows, pass.sequence, gy.size(1)}, gy.options());
    all.select(1, 0).copy_(gy);
    return all.view({pass.num_tokens(), gy.size(1)});
  }
  const FirstTokens first(pass);
  const at::Tensor gx = at::zeros({first.own.size(), gy.size(1)}, gy.options());
  if (!first.held.empty()) first.of_tokens(gx).copy_(first.of_rows(gy));
  return gx;
}

at::Tensor gather_channels(const at::Tensor& own, std::int64_t channels, TensorAxis& axis) {
  const std::int64_t n = own.size(0);
  if (channels % axis.degree() == 0) {
    const at::Tensor all = at::empty({axis.degree(), n, own.size(1)}, own.options());
    axis.gather(all, own.unsqueeze(0))->wait();
    return all.transpose(0, 1).contiguous().view({n, channels});
  }
  const at::Tensor all = at::empty({channels, n}, own.options());
  const at::Tensor turned = own.t().contiguous();
  axis.gather(all, turned)->wait();
  return all.t().contiguous();
}

at::Tensor whole_channels(const at::Tensor& x, std::int64_t channels, const Pass& pass) {
  if (pass.tensor == nullptr) return x;
  const Range own = pass.tensor->part(channels);
  if (x.size(-1) != own.size()) {
    throw InternalError(fmt::format("whole_channels: {} channels where tp rank {} of {} has {} of {}", x.size(-1),
                                    pass.tensor->coordinate(), pass.tensor->degree(), own.size(), channels));
  }
  BelowAutograd below;
  at::DimVector shape(x.sizes());
  shape.back() = channels;
  // Without elements the number of rows cannot be told from the matrix.
  const std::int64_t n = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
  return gather_channels(x.contiguous().view({n, x.size(-1)}), channels, *pass.tensor).view(shape);
}

at::Tensor whole_tokens(const at::Tensor& x, const Pass& pass) {
  if (!pass.cuts_tokens()) return x;
  BelowAutograd below;
  const at::Tensor all = at::empty({pass.num_tokens(), x.size(1)}, x.options());
  pass.tensor->gather(all, x.contiguous())->wait();
  return all.view({pass.rows, pass.sequence, x.size(1)});
}

}  // namespace orthant::nn
