// Context attention over gathered keys and values.
#include <ATen/ATen.h>

#include "orthant/ops/attention/context_blocks.h"

namespace orthant::nn {
namespace {

// Keys and values of all ranks, or gradients of them, one rank after the other.
class AllKeys {
 public:
  AllKeys(const Pass& pass, std::int64_t width) : pass_(pass), width_(width) {
    for (int c = 0; c < pass.context->degree(); ++c)
      counts_.push_back(pass.rows * pass.context->positions(pass.whole_sequence(), c).size() * width);
  }

  const std::vector<std::int64_t>& counts() const { return counts_; }
  std::int64_t elements() const { return pass_.rows * pass_.whole_sequence() * width_; }

  // action(pieces of the rank, its part of `all`) for every rank, this one included.
  template <class Action>
  void for_ranks(const at::Tensor& all, const Action& action) const {
    std::int64_t first = 0;
    for (int c = 0; c < pass_.context->degree(); ++c) {
      const RowPieces pieces(pass_.context->positions(pass_.whole_sequence(), c));
      const std::int64_t count = counts_[static_cast<std::size_t>(c)];
      action(pieces, all.narrow(0, first, count).view({pass_.rows * pieces.size(), width_}));
      first += count;
    }
  }

  at::Tensor gathered(const at::Tensor& own) const {
    const at::Tensor all = at::empty({elements()}, own.options());
    pass_.context->gather(all, own.contiguous(), counts_)->wait();
    return all;
  }

 private:
  const Pass& pass_;
  std::int64_t width_;
  std::vector<std::int64_t> counts_;
};

}  // namespace

ContextOutput gather_forward(const at::Tensor& qkv, const HeadsSetup& setup, const Sight& sight, const Pass& pass) {
  const at::Tensor q = split_heads(qkv, setup.options).q;
  const at::Tensor own = keys_and_values(qkv, setup.options);
  const AllKeys keys(pass, own.size(1));
  const RowPieces queries(pass.positions);
  const HeadsSums sums = empty_sums(q, setup.options);
  keys.for_ranks(keys.gathered(own), [&](const RowPieces& pieces, const at::Tensor& part) {
    blocks_forward(with_keys(q, part), sight.blocks(queries, pieces), setup, sums);
  });
  return {sums.out.to(qkv.scalar_type()), sums.lse};
}

at::Tensor gather_backward(const at::Tensor& qkv, const ContextOutput& output, const at::Tensor& d_out,
                           const HeadsSetup& setup, const Sight& sight, const Pass& pass) {
  const at::Tensor q = split_heads(qkv, setup.options).q;
  const at::Tensor own = keys_and_values(qkv, setup.options);
  const AllKeys keys(pass, own.size(1));
  const RowPieces queries(pass.positions);
  const AttendedQueries attended = {output.out, output.lse, blocks_delta(output.out, d_out, setup.options.heads),
                                    d_out};
  OwnGradients gradients(qkv, setup.options, output.lse.scalar_type());
  const at::Tensor all = keys.gathered(own);
  const at::Tensor d_all = at::zeros({keys.elements()}, gradients.q.options());
  std::vector<at::Tensor> parts;
  keys.for_ranks(d_all, [&](const RowPieces&, const at::Tensor& part) { parts.push_back(part); });
  std::size_t c = 0;
  keys.for_ranks(all, [&](const RowPieces& pieces, const at::Tensor& part) {
    blocks_backward(with_keys(q, part), sight.blocks(queries, pieces), setup, attended,
                    with_keys(gradients.q, parts[c++]));
  });
  const at::Tensor travelling = d_all.to(qkv.scalar_type());
  gradients.keys_values = at::empty({own.size(0), own.size(1)}, qkv.options());
  pass.context->scatter(gradients.keys_values, travelling, keys.counts(), pass.subject())->wait();
  return gradients.joined(qkv.scalar_type());
}

}  // namespace orthant::nn
