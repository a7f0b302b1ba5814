// Context attention of a part of the heads over all tokens.
#include <ATen/ATen.h>

#include "orthant/ops/attention/context_blocks.h"
#include "orthant/ops/exchange/token_values.h"
#include "orthant/ops/heads_part.h"

namespace orthant::nn {
namespace {

// Whose tokens and heads go where.
class HeadsExchange {
 public:
  HeadsExchange(const AttentionOptions& options, const Pass& pass)
      : options_(options), axis_(*pass.context), rows_(pass.rows), sequence_(pass.whole_sequence()) {
    for (int c = 0; c < axis_.degree(); ++c) {
      parts_.emplace_back(ops::Heads{options.heads, options.kv_heads, options.head_size}, axis_.degree(), c);
      positions_.push_back(axis_.positions(sequence_, c));
    }
  }

  const HeadsPart& own() const { return parts_[index(axis_.coordinate())]; }

  // Of own heads over whole rows.
  AttentionOptions own_options() const {
    AttentionOptions options = options_;
    options.heads = own().heads.size();
    options.kv_heads = own().num_kv_heads();
    options.first_head += own().heads.begin;
    return options;
  }

  // [own tokens, columns of all heads] -> [tokens of whole rows, columns of own heads]. `columns(part, x)` takes the
  // columns of a rank's heads; `width(part)` is how many they are.
  template <class Columns, class Width>
  at::Tensor to_heads(const at::Tensor& x, const Columns& columns, const Width& width) const {
    std::vector<at::Tensor> sent;
    std::vector<std::int64_t> sent_counts, counts;
    const std::int64_t own_width = width(own());
    for (int c = 0; c < axis_.degree(); ++c) {
      sent.push_back(columns(parts_[index(c)], x).contiguous().view({-1}));
      sent_counts.push_back(sent.back().numel());
      counts.push_back(rows_ * positions_[index(c)].size() * own_width);
    }
    const at::Tensor arrived = at::empty({rows_ * sequence_ * own_width}, x.options());
    axis_.all_to_all(arrived, at::cat(sent), counts, sent_counts)->wait();
    const at::Tensor whole = at::empty({rows_, sequence_, own_width}, x.options());
    std::int64_t first = 0;
    for (int c = 0; c < axis_.degree(); ++c) {
      const OwnPositions& own = positions_[index(c)];
      const at::Tensor part = arrived.narrow(0, first, counts[index(c)]).view({rows_, own.size(), own_width});
      first += counts[index(c)];
      place_in_rows(whole, own, part);
    }
    return whole.view({rows_ * sequence_, own_width});
  }

  // And back: columns of all heads for own tokens, as they came: parts[c] is what rank c's heads give.
  template <class Width>
  std::vector<at::Tensor> to_tokens(const at::Tensor& x, const Width& width) const {
    std::vector<at::Tensor> sent;
    std::vector<std::int64_t> sent_counts, counts;
    const at::Tensor by_rows = x.view({rows_, sequence_, x.size(1)});
    const std::int64_t own_size = positions_[index(axis_.coordinate())].size();
    for (int c = 0; c < axis_.degree(); ++c) {
      sent.push_back(part_of_rows(by_rows, positions_[index(c)]).contiguous().view({-1}));
      sent_counts.push_back(sent.back().numel());
      counts.push_back(rows_ * own_size * width(parts_[index(c)]));
    }
    std::int64_t all = 0;
    for (const std::int64_t count : counts) all += count;
    const at::Tensor arrived = at::empty({all}, x.options());
    axis_.all_to_all(arrived, at::cat(sent), counts, sent_counts)->wait();
    std::vector<at::Tensor> parts;
    std::int64_t first = 0;
    for (int c = 0; c < axis_.degree(); ++c) {
      parts.push_back(arrived.narrow(0, first, counts[index(c)]).view({rows_ * own_size, width(parts_[index(c)])}));
      first += counts[index(c)];
    }
    return parts;
  }

  const std::vector<HeadsPart>& parts() const { return parts_; }

 private:
  static std::size_t index(int c) { return static_cast<std::size_t>(c); }

  const AttentionOptions& options_;
  ContextAxis& axis_;
  std::int64_t rows_;
  std::int64_t sequence_;
  std::vector<HeadsPart> parts_;
  std::vector<OwnPositions> positions_;
};

// Columns of a rank's heads of queries or outputs, and of a joined projection.
auto head_columns(std::int64_t head_size) {
  return [head_size](const HeadsPart& part, const at::Tensor& x) {
    return x.narrow(1, part.heads.begin * head_size, part.heads.size() * head_size);
  };
}
auto head_width(std::int64_t head_size) {
  return [head_size](const HeadsPart& part) { return part.heads.size() * head_size; };
}

at::Tensor joined_columns(const HeadsPart& part, const at::Tensor& qkv, const AttentionOptions& options) {
  const HeadsMatrices all = split_heads(qkv, options);
  std::vector<at::Tensor> columns = {head_columns(options.head_size)(part, all.q)};
  for (const at::Tensor& matrix : {all.k, all.v}) {
    for (const std::int64_t kv : part.kv_heads)
      columns.push_back(matrix.narrow(1, kv * options.head_size, options.head_size));
  }
  return at::cat(columns, 1);
}

}  // namespace

ContextOutput all_to_all_forward(const at::Tensor& qkv, const AttentionOptions& options, const Sight& sight,
                                 const Pass& pass) {
  const HeadsExchange exchange(options, pass);
  const RowPieces rows(OwnPositions::whole(pass.whole_sequence()));
  const std::int64_t size = options.head_size;
  const at::Tensor met = exchange.to_heads(
      qkv, [&](const HeadsPart& part, const at::Tensor& x) { return joined_columns(part, x, options); },
      [&](const HeadsPart& part) { return part.joined() * size; });
  const AttentionOptions own = exchange.own_options();
  ContextOutput output{.met = met};
  at::Tensor out = at::empty({met.size(0), 0}, qkv.options());
  output.lse = at::empty({0, met.size(0)}, qkv.options());
  if (own.heads > 0) {
    const HeadsMatrices heads = split_heads(met, own);
    const HeadsSums sums = empty_sums(heads.q, own);
    blocks_forward(heads, sight.blocks(rows, rows), blocks_setup(pass.rows, pass.whole_sequence(), own, pass), sums);
    out = sums.out.to(qkv.scalar_type());
    output.lse = sums.lse;
  }
  output.out = at::cat(exchange.to_tokens(out, head_width(size)), 1);
  return output;
}

at::Tensor all_to_all_backward(const ContextOutput& output, const at::Tensor& d_out, const AttentionOptions& options,
                               const Sight& sight, const Pass& pass) {
  const HeadsExchange exchange(options, pass);
  const RowPieces rows(OwnPositions::whole(pass.whole_sequence()));
  const std::int64_t size = options.head_size;
  // d_out . out of own tokens, a number per head.
  const at::Tensor own_delta = blocks_delta(output.out, d_out, options.heads).t();
  const at::Tensor d_met_out = exchange.to_heads(d_out, head_columns(size), head_width(size));
  const at::Tensor delta = exchange.to_heads(own_delta, head_columns(1), head_width(1)).t().contiguous();
  const AttentionOptions own = exchange.own_options();
  const auto wide = own_delta.scalar_type();
  at::Tensor d_met = at::zeros(output.met.sizes(), output.met.options().dtype(wide));
  if (own.heads > 0) {
    blocks_backward(split_heads(output.met, own), sight.blocks(rows, rows),
                    blocks_setup(pass.rows, pass.whole_sequence(), own, pass),
                    {/*out=*/{}, output.lse, delta, d_met_out}, split_heads(d_met, own));
  }
  const auto parts = exchange.to_tokens(d_met.to(output.met.scalar_type()),
                                        [&](const HeadsPart& part) { return part.joined() * size; });
  OwnGradients gradients(d_out, options, wide);
  const HeadsMatrices all = with_keys(gradients.q, gradients.keys_values);
  for (std::size_t c = 0; c < parts.size(); ++c) {
    const HeadsPart& part = exchange.parts()[c];
    std::int64_t column = part.heads.size() * size;
    head_columns(size)(part, all.q).copy_(parts[c].narrow(1, 0, column));
    for (const at::Tensor& matrix : {all.k, all.v}) {
      for (const std::int64_t kv : part.kv_heads) {
        matrix.narrow(1, kv * size, size).add_(parts[c].narrow(1, column, size));
        column += size;
      }
    }
  }
  return gradients.joined(d_out.scalar_type());
}

}  // namespace orthant::nn
