// Attention over cp, on a host or by a device's kernels: what it and its exchanges take, message by message, in the
// order of ops/attention/context_*.cpp.
#include <algorithm>
#include <deque>
#include <vector>

#include "orthant/ops/attention_workspace.h"
#include "orthant/ops/heads_part.h"
#include "orthant/plan/estimate/operation_price.h"

namespace orthant {
namespace {

constexpr std::size_t kMessages = 4;  // of a ring that are on their way, as in ops/attention/context_ring.cpp

double area(std::int64_t left, std::int64_t right) {
  return static_cast<double>(left) * static_cast<double>(right);
}

}  // namespace

class OperationPrices::ContextPrices {
 public:
  ContextPrices(OperationPrices& prices, const Operation& op, int heads)
      : prices_(prices),
        memory_(prices.memory),
        sharing_(prices.place_.sharing),
        coordinate_(prices.place_.coordinate),
        rows_(prices.sizes_.rows),
        whole_(prices.sizes_.whole_sequence),
        tokens_(prices.sizes_.tokens()),
        rule_{op.attributes.flag("causal"), op.attributes.integer("window")},
        narrow_(prices.narrow()),
        element_(prices.element_),
        wide_(prices.wide_) {
    const std::int64_t groups = op.attributes.integer("heads") / op.attributes.integer("kv_heads");
    heads_ = {heads, std::max<std::int64_t>(heads / groups, 1), op.attributes.integer("head_size")};
    for (int c = 0; c < sharing_.degree; ++c) parts_.emplace_back(heads_, sharing_.degree, c);
  }

  Sums forward() {
    switch (sharing_.way) {
      case ContextWay::ring:
        return ring();
      case ContextWay::gather:
        return gather();
      case ContextWay::all_to_all:
        break;
    }
    return all_to_all();
  }

  // The gradient of the joined projection.
  Held backward() {
    switch (sharing_.way) {
      case ContextWay::ring:
        return ring_back();
      case ContextWay::gather:
        return gather_back();
      case ContextWay::all_to_all:
        break;
    }
    return all_to_all_back();
  }

 private:
  using Pieces = std::vector<Range>;

  Held take(double elements, double bytes) { return memory_.take(elements * bytes); }
  // As ATen converts to the wide type and back: what has it already stays.
  Held widened(double elements) { return narrow_ ? take(elements, wide_) : Held(); }
  Held narrowed(Held wide, double elements) { return narrow_ ? take(elements, element_) : std::move(wide); }

  double queries() const { return area(tokens_, heads_.heads * heads_.head_size); }
  double statistics() const { return area(tokens_, heads_.heads); }
  std::int64_t kv_width() const { return 2 * heads_.kv_heads * heads_.head_size; }
  double joined() const { return queries() + area(tokens_, kv_width()); }
  const HeadsPart& own() const { return parts_[static_cast<std::size_t>(coordinate_)]; }

  Pieces pieces(int coordinate, std::array<bool, 2> taken = {true, true}) const {
    Pieces found;
    const OwnPositions positions = own_positions(whole_, sharing_, coordinate);
    for (std::size_t i = 0; i < 2; ++i) {
      if (taken.at(i) && !positions.pieces.at(i).empty()) found.push_back(positions.pieces.at(i));
    }
    return found;
  }
  Pieces seen(int holder, int reader) const {
    return pieces(holder, seen_pieces(whole_, sharing_, rule_, holder, reader));
  }
  static std::int64_t positions(const Pieces& pieces) {
    std::int64_t all = 0;
    for (const Range piece : pieces) all += piece.size();
    return all;
  }
  double keys_values(const Pieces& keys) const { return area(rows_ * positions(keys), kv_width()); }

  // Blocks of queries and keys, of `heads` heads over matrices of so many elements.
  void join(const Pieces& queries, const Pieces& keys, double q_elements, double kv_elements) {
    if (!prices_.on_host_) return join_on_device(queries, keys, q_elements, kv_elements, 1);
    std::int64_t scratch = 0;
    for (const Range q : queries) {
      for (const Range k : keys) {
        if (!rule_.sees(q, k)) continue;
        const auto space = attention_workspace(q.size(), k.size(), heads_.head_size, static_cast<std::int64_t>(wide_),
                                               prices_.settings_.vector_bytes);
        scratch = std::max(scratch, space.elements);
      }
    }
    if (scratch == 0) return;
    const Held copies = widened(q_elements + kv_elements);
    take(static_cast<double>(scratch), wide_);
  }
  void join(const Pieces& keys) { join(pieces(coordinate_), keys, queries(), keys_values(keys)); }
  // As ops/attention/attention_blocks_device.cpp copies a block: queries, keys and values side by side, and the output;
  // in backward their gradients, and float32 sums.
  void join_on_device(const Pieces& queries, const Pieces& keys, double q_elements, double kv_elements, int matrices) {
    const double width = q_elements / static_cast<double>(rows_ * positions(queries));
    const double joined = width + kv_elements / static_cast<double>(rows_ * positions(keys));
    for (const Range q : queries) {
      for (const Range k : keys) {
        if (!rule_.sees(q, k)) continue;
        const auto tokens = static_cast<double>(rows_ * std::max(q.size(), k.size()));
        const Held copies = take(tokens * (matrices * joined + width), element_);
        if (matrices > 1) take(tokens * (width + 4 * width / static_cast<double>(heads_.head_size)), wide_);
      }
    }
  }
  // In backward the gradients of outputs are widened, too.
  void join_back(const Pieces& queries, const Pieces& keys, double q_elements, double kv_elements) {
    if (!prices_.on_host_) return join_on_device(queries, keys, q_elements, kv_elements, 2);
    join(queries, keys, 2 * q_elements, kv_elements);
  }
  void join_back(const Pieces& keys) { join_back(pieces(coordinate_), keys, queries(), keys_values(keys)); }

  Sums sums(double outputs, double numbers) { return {.out = take(outputs, wide_), .lse = take(numbers, wide_)}; }

  // d_out . out, a number of each query and head.
  Held delta() {
    Held products;
    {
      const Held wide = widened(2 * queries());
      products = take(queries(), wide_);
    }
    const Held by_token = take(statistics(), wide_);
    const bool turned = heads_.heads > 1 && tokens_ > 1;
    return turned ? take(statistics(), wide_) : by_token;
  }

  // Adding a narrow matrix to a wide one converts it first.
  void add(double elements) { widened(elements); }

  Held joined_gradient(Held q, const Held& keys_values, bool keys_are_narrow = false) {
    const Held narrow_q = narrowed(std::move(q), queries());
    const Held narrow_keys = keys_are_narrow ? keys_values : narrowed(keys_values, joined() - queries());
    return take(joined(), element_);
  }

  int reader(int step) const { return (coordinate_ + step) % sharing_.degree; }
  int holder(int step) const { return (coordinate_ - step + sharing_.degree) % sharing_.degree; }

  void send(Held message) {
    while (sends_.size() > kMessages - 1) sends_.pop_front();
    sends_.push_back(std::move(message));
  }

  Held start(int step) {
    Held arriving;
    if (step > sharing_.degree - 1) return arriving;
    if (const Pieces keys = seen(coordinate_, reader(step)); !keys.empty()) send(take(keys_values(keys), element_));
    if (const Pieces keys = seen(holder(step), coordinate_); !keys.empty())
      arriving = take(keys_values(keys), element_);
    return arriving;
  }

  Sums ring() {
    Sums made = sums(queries(), statistics());
    Held next = start(1);
    join(pieces(coordinate_));
    for (int step = 1; step < sharing_.degree; ++step) {
      const Held here = std::move(next);
      next = start(step + 1);
      if (here) join(seen(holder(step), coordinate_));
    }
    sends_.clear();
    made.out = narrowed(std::move(made.out), queries());
    return made;
  }

  Held ring_back() {
    const Held numbers = delta();
    Held q = take(queries(), wide_);
    Held keys_and_values = take(joined() - queries(), wide_);
    std::deque<Held> returning;
    const auto arrived = [&](std::size_t left) {
      for (; returning.size() > left; returning.pop_front()) {
        if (narrow_) add_largest_piece();
      }
    };
    Held next = start(1);
    join_back(pieces(coordinate_));
    for (int step = 1; step < sharing_.degree; ++step) {
      const Held here = std::move(next);
      next = start(step + 1);
      if (here) {
        const Pieces keys = seen(holder(step), coordinate_);
        const Held gradient = take(keys_values(keys), wide_);
        join_back(keys);
        send(narrowed(gradient, keys_values(keys)));
      }
      if (const Pieces sent = seen(coordinate_, reader(step)); !sent.empty()) {
        returning.push_back(take(keys_values(sent), element_));
      }
      arrived(1);
    }
    arrived(0);
    sends_.clear();
    return joined_gradient(std::move(q), keys_and_values);
  }

  void add_largest_piece() {
    std::int64_t most = 0;
    for (const Range piece : pieces(coordinate_)) most = std::max(most, piece.size());
    add(area(rows_ * most, kv_width()));
  }

  double all_keys_values() const { return area(rows_ * whole_, kv_width()); }

  // Keys and values of all ranks, from a copy of this rank's.
  Held gathered() {
    Held all = take(all_keys_values(), element_);
    take(joined() - queries(), element_);
    return all;
  }

  Sums gather() {
    Sums made = sums(queries(), statistics());
    {
      const Held all = gathered();
      for (int c = 0; c < sharing_.degree; ++c) join(pieces(c));
    }
    made.out = narrowed(std::move(made.out), queries());
    return made;
  }

  Held gather_back() {
    const Held numbers = delta();
    Held q = take(queries(), wide_);
    Held keys_and_values = take(joined() - queries(), wide_);
    const Held all = gathered();
    const Held gradients = take(all_keys_values(), wide_);
    for (int c = 0; c < sharing_.degree; ++c) join_back(pieces(c));
    const Held travelling = narrowed(gradients, all_keys_values());
    keys_and_values = take(joined() - queries(), element_);
    return joined_gradient(std::move(q), keys_and_values, /*keys_are_narrow=*/true);
  }

  // Columns of own tokens, `width` of them for all heads, become `own_width` of all tokens. `copies`: they do not lie
  // side by side already.
  Held to_heads(double width, double own_width, double bytes, bool copies = true) {
    const Held sent = copies ? take(static_cast<double>(tokens_) * width, bytes) : Held();
    const Held arrived = take(area(rows_, whole_) * own_width, bytes);
    take(static_cast<double>(tokens_) * width, bytes);
    return take(area(rows_, whole_) * own_width, bytes);
  }

  // And back.
  Held to_tokens(double width, double own_width) {
    const Held sent = rows_ > 1 ? take(area(rows_, whole_) * own_width, element_) : Held();
    Held arrived = take(static_cast<double>(tokens_) * width, element_);
    take(area(rows_, whole_) * own_width, element_);
    return arrived;
  }

  double all_joined() const {
    std::int64_t heads = 0;
    for (const HeadsPart& part : parts_) heads += part.joined();
    return static_cast<double>(heads * heads_.head_size);
  }

  Sums all_to_all() {
    const double size = static_cast<double>(heads_.head_size), tokens = area(rows_, whole_);
    const double own_heads = static_cast<double>(own().heads.size()), own_joined = static_cast<double>(own().joined());
    Sums made;
    made.met = to_heads(all_joined(), own_joined * size, element_);
    Held out;
    if (own_heads > 0) {
      Sums here = sums(tokens * own_heads * size, tokens * own_heads);
      const Pieces all = {{0, whole_}};
      join(all, all, tokens * own_heads * size, tokens * (own_joined - own_heads) * size);
      out = narrowed(here.out, tokens * own_heads * size);
      made.lse = here.lse;
    }
    const Held parts = to_tokens(static_cast<double>(heads_.heads) * size, own_heads * size);
    made.out = take(queries(), element_);
    return made;
  }

  Held all_to_all_back() {
    const double size = static_cast<double>(heads_.head_size), tokens = area(rows_, whole_);
    const double own_heads = static_cast<double>(own().heads.size()), own_joined = static_cast<double>(own().joined());
    const Held own_numbers = delta();
    const Held d_out = to_heads(static_cast<double>(heads_.heads) * size, own_heads * size, element_);
    const bool copies = heads_.heads > sharing_.degree;  // of a number for one head nothing
    Held numbers = to_heads(static_cast<double>(heads_.heads), own_heads, wide_, copies);
    if (own_heads > 1) numbers = take(tokens * own_heads, wide_);
    const Held gradients = take(tokens * own_joined * size, wide_);
    if (own_heads > 0) {
      const Pieces all = {{0, whole_}};
      join_back(all, all, tokens * own_heads * size, tokens * (own_joined - own_heads) * size);
    }
    Held parts;
    {
      const Held travelling = narrowed(gradients, tokens * own_joined * size);
      parts = to_tokens(all_joined(), own_joined * size);
    }
    Held q = take(queries(), wide_);
    const Held keys_and_values = take(joined() - queries(), wide_);
    add(static_cast<double>(tokens_) * size);
    return joined_gradient(std::move(q), keys_and_values);
  }

  OperationPrices& prices_;
  CountedMemory& memory_;
  const ContextSharing& sharing_;
  int coordinate_;
  std::int64_t rows_;
  std::int64_t whole_;
  std::int64_t tokens_;
  KeyRule rule_;
  bool narrow_;
  double element_;
  double wide_;
  ops::Heads heads_;
  std::vector<HeadsPart> parts_;
  std::deque<Held> sends_;
};

OperationPrices::Sums OperationPrices::context_attention(const Operation& op) {
  return ContextPrices(*this, op, static_cast<int>(local_heads(op))).forward();
}

Held OperationPrices::context_attention_back(const Operation& op) {
  return ContextPrices(*this, op, static_cast<int>(local_heads(op))).backward();
}

}  // namespace orthant
