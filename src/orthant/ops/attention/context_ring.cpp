// Context attention with keys and values that come from one rank after the other.
#include <ATen/ATen.h>

#include <deque>
#include <tuple>
#include <utility>

#include "orthant/ops/attention/context_blocks.h"

namespace orthant::nn {
namespace {

// Keys and values on their way to this rank and from it, in step i: see Note [Context attention].
class Ring {
 public:
  Ring(const at::Tensor& qkv, const HeadsSetup& setup, const Pass& pass)
      : axis_(*pass.context),
        rows_(pass.rows),
        sequence_(pass.whole_sequence()),
        rule_(key_rule(setup.options)),
        own_(keys_and_values(qkv, setup.options)),
        width_(own_.size(1)) {}

  int steps() const { return axis_.degree() - 1; }
  int reader(int step) const { return (axis_.coordinate() + step) % axis_.degree(); }
  int holder(int step) const { return (axis_.coordinate() - step + axis_.degree()) % axis_.degree(); }

  // What this rank reads of the holder of a step, and what the reader of a step reads here.
  RowPieces read_pieces(int step) const { return pieces_between(holder(step), axis_.coordinate()); }
  RowPieces sent_pieces(int step) const { return pieces_between(axis_.coordinate(), reader(step)); }

  const at::Tensor& own() const { return own_; }

  struct Arriving {
    at::Tensor keys_values;  // [rows * positions, 2 kv_heads * head_size]; undefined: nothing is read
    std::unique_ptr<Exchange> work;
  };

  // Starts a step: sends what the reader sees, and receives. In this order: Note [Starting kernels] in comm/nccl.cpp.
  Arriving start(int step) {
    Arriving arriving;
    if (const RowPieces pieces = sent_pieces(step); pieces.size() > 0) {
      const at::Tensor sent = taken(pieces);
      send(sent, reader(step));
    }
    if (const RowPieces pieces = read_pieces(step); pieces.size() > 0) {
      arriving.keys_values = at::empty({rows_ * pieces.size(), width_}, own_.options());
      arriving.work = axis_.receive(arriving.keys_values, holder(step));
    }
    return arriving;
  }

  // At most four messages are on their way: of two steps in backward, of four in forward.
  void send(const at::Tensor& tensor, int to) {
    constexpr std::size_t kUnderWay = 4;
    finish(kUnderWay - 1);
    sends_.emplace_back(tensor, axis_.send(tensor, to));
  }

  // Rows of a matrix over own tokens that belong to some of their pieces, in order; views.
  template <class Action>
  void for_pieces(const RowPieces& pieces, const at::Tensor& matrix, const Action& action) const {
    const at::Tensor by_rows = matrix.unflatten(0, {rows_, matrix.size(0) / rows_});
    const OwnPositions own = axis_.positions(sequence_);
    for (const Range piece : pieces.pieces()) {
      const std::int64_t first = piece == own.pieces[0] ? 0 : own.second_piece();
      action(by_rows.narrow(1, first, piece.size()), piece.size());
    }
  }

  // Waits until at most so many messages are on their way.
  void finish(std::size_t left = 0) {
    while (sends_.size() > left) {
      sends_.front().second->wait();
      sends_.pop_front();
    }
  }

 private:
  RowPieces pieces_between(int from, int to) const {
    return {axis_.positions(sequence_, from), seen_pieces(sequence_, axis_.sharing(), rule_, from, to)};
  }

  at::Tensor taken(const RowPieces& pieces) const {
    std::vector<at::Tensor> parts;
    for_pieces(pieces, own_, [&](const at::Tensor& part, std::int64_t) { parts.push_back(part); });
    return at::cat(parts, 1).view({-1, width_});
  }

  ContextAxis& axis_;
  std::int64_t rows_;
  std::int64_t sequence_;
  KeyRule rule_;
  at::Tensor own_;
  std::int64_t width_;
  std::deque<std::pair<at::Tensor, std::unique_ptr<Exchange>>> sends_;
};

}  // namespace

ContextOutput ring_forward(const at::Tensor& qkv, const HeadsSetup& setup, const Sight& sight, const Pass& pass) {
  const at::Tensor q = split_heads(qkv, setup.options).q;
  const RowPieces queries(pass.positions);
  const HeadsSums sums = empty_sums(q, setup.options);
  Ring ring(qkv, setup, pass);
  const auto join = [&](const at::Tensor& keys_values, const RowPieces& keys) {
    blocks_forward(with_keys(q, keys_values), sight.blocks(queries, keys), setup, sums);
  };
  Ring::Arriving next = ring.start(1);
  join(ring.own(), queries);
  for (int step = 1; step <= ring.steps(); ++step) {
    const Ring::Arriving here = std::move(next);
    if (step < ring.steps()) next = ring.start(step + 1);
    if (!here.work) continue;
    here.work->wait();
    join(here.keys_values, ring.read_pieces(step));
  }
  ring.finish();
  return {sums.out.to(qkv.scalar_type()), sums.lse};
}

namespace {

// Gradients of own keys and values that readers send back.
class Returning {
 public:
  Returning(Ring& ring, ContextAxis& axis, const OwnGradients& gradients, std::int64_t rows, at::ScalarType dtype)
      : ring_(ring), axis_(axis), gradients_(gradients), rows_(rows), dtype_(dtype) {}

  void expect(int step) {
    const RowPieces pieces = ring_.sent_pieces(step);
    if (pieces.size() == 0) return;
    const auto options = gradients_.keys_values.options().dtype(dtype_);
    const at::Tensor buffer = at::empty({rows_ * pieces.size(), gradients_.keys_values.size(1)}, options);
    waiting_.emplace_back(buffer, pieces, axis_.receive(buffer, ring_.reader(step)));
  }

  // Adds those of all steps but the last `left` that were expected.
  void add(std::size_t left) {
    while (waiting_.size() > left) {
      auto& [buffer, pieces, work] = waiting_.front();
      work->wait();
      std::int64_t first = 0;
      const at::Tensor by_rows = buffer.view({rows_, pieces.size(), buffer.size(1)});
      ring_.for_pieces(pieces, gradients_.keys_values, [&](const at::Tensor& own, std::int64_t positions) {
        own.add_(by_rows.narrow(1, first, positions));
        first += positions;
      });
      waiting_.erase(waiting_.begin());
    }
  }

 private:
  Ring& ring_;
  ContextAxis& axis_;
  const OwnGradients& gradients_;
  std::int64_t rows_;
  at::ScalarType dtype_;
  std::vector<std::tuple<at::Tensor, RowPieces, std::unique_ptr<Exchange>>> waiting_;
};

}  // namespace

at::Tensor ring_backward(const at::Tensor& qkv, const ContextOutput& output, const at::Tensor& d_out,
                         const HeadsSetup& setup, const Sight& sight, const Pass& pass) {
  const at::Tensor q = split_heads(qkv, setup.options).q;
  const RowPieces queries(pass.positions);
  const AttendedQueries attended = {output.out, output.lse, blocks_delta(output.out, d_out, setup.options.heads),
                                    d_out};
  OwnGradients gradients(qkv, setup.options, output.lse.scalar_type());
  Ring ring(qkv, setup, pass);
  Returning returning(ring, *pass.context, gradients, pass.rows, qkv.scalar_type());
  const auto join = [&](const at::Tensor& keys_values, const RowPieces& keys, const at::Tensor& d_keys_values) {
    blocks_backward(with_keys(q, keys_values), sight.blocks(queries, keys), setup, attended,
                    with_keys(gradients.q, d_keys_values));
  };
  Ring::Arriving next = ring.start(1);
  join(ring.own(), queries, gradients.keys_values);
  for (int step = 1; step <= ring.steps(); ++step) {
    const Ring::Arriving here = std::move(next);
    if (step < ring.steps()) next = ring.start(step + 1);
    if (here.work) {
      here.work->wait();
      const at::Tensor d_keys_values = at::zeros(here.keys_values.sizes(), gradients.q.options());
      join(here.keys_values, ring.read_pieces(step), d_keys_values);
      ring.send(d_keys_values.to(qkv.scalar_type()), ring.holder(step));
    }
    returning.expect(step);
    returning.add(1);
  }
  returning.add(0);
  ring.finish();
  return gradients.joined(qkv.scalar_type());
}

}  // namespace orthant::nn
