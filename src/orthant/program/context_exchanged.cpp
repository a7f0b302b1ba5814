#include "orthant/program/context_exchanged.h"

#include "orthant/base/index.h"
#include "orthant/ops/heads_part.h"

namespace orthant {
namespace {

// One attention of a rank.
class AttentionExchange {
 public:
  AttentionExchange(const Operation& attention, bool heads_are_cut, const UnitSizes& sizes,
                    const ContextSharing& sharing, int coordinate)
      : sizes_(sizes), sharing_(sharing), coordinate_(coordinate) {
    heads_ = local_heads(attention.attributes, heads_are_cut ? sizes.degree : 1);
    rule_ = {attention.attributes.flag("causal"), attention.attributes.integer("window")};
    head_bytes_ = heads_.head_size * element_bytes(Number::compute, sizes.compute);
  }

  void add_ring(Exchanged& total, bool backward) const {
    for (int other = 0; other < sharing_.degree; ++other) {
      if (other == coordinate_) continue;
      const std::int64_t sent = seen_bytes(coordinate_, other), received = seen_bytes(other, coordinate_);
      if (sent > 0) total.sent.add(sent);
      if (received > 0) total.received.add(received);
      if (!backward) continue;
      if (received > 0) total.sent.add(received);
      if (sent > 0) total.received.add(sent);
    }
  }

  void add_gather(Exchanged& total, bool backward) const {
    const std::int64_t bytes = sizes_.rows * sizes_.whole_sequence * 2 * heads_.kv_heads * head_bytes_;
    total.gather.add(bytes);
    if (backward) total.scatter.add(bytes);
  }

  void add_all_to_all(Exchanged& total, bool backward) const {
    const std::int64_t own = sizes_.rows * own_positions(sizes_.whole_sequence, sharing_, coordinate_).size();
    const std::int64_t all = sizes_.rows * sizes_.whole_sequence;
    const HeadsPart part(heads_, sharing_.degree, coordinate_);
    if (backward) {
      total.all_to_all.add(own * heads_.heads * head_bytes_);
      total.all_to_all.add(own * heads_.heads * element_bytes(Number::statistic, sizes_.compute));
      total.all_to_all.add(all * part.joined() * head_bytes_);
      return;
    }
    std::int64_t joined = 0;
    for (int c = 0; c < sharing_.degree; ++c) joined += HeadsPart(heads_, sharing_.degree, c).joined();
    total.all_to_all.add(own * joined * head_bytes_);
    total.all_to_all.add(all * part.heads.size() * head_bytes_);
  }

 private:
  std::int64_t seen_bytes(int holder, int reader) const {
    const std::int64_t seen = seen_positions(sizes_.whole_sequence, sharing_, rule_, holder, reader);
    return sizes_.rows * seen * 2 * heads_.kv_heads * head_bytes_;
  }

  const UnitSizes& sizes_;
  const ContextSharing& sharing_;
  int coordinate_;
  Heads heads_;
  KeyRule rule_;
  std::int64_t head_bytes_ = 0;
};

}  // namespace

Exchanged context_exchanged(const Program& program, const std::vector<Operation>& list, const UnitSizes& sizes,
                            const ContextSharing& sharing, int coordinate) {
  Exchanged total;
  for (const auto& operation : list) {
    if (const auto counts = router_count_bytes(program, operation, sizes); counts > 0) {
      total.sum.add(counts);
    }
    if (const auto bytes = told_choice_bytes(program, operation); bytes > 0) {
      total.sum.add(sizes.rows * sizes.whole_sequence * bytes);
    }
    if (!shares_rows(operation)) continue;
    const bool backward = operation.name == "attention_back";
    const int attended = backward ? operation.in[3] : operation.out[0];
    const bool cut = !program.values[to_index(attended)].at.dims.back().cuts.empty();
    const AttentionExchange exchange(operation, cut, sizes, sharing, coordinate);
    switch (sharing.way) {
      case ContextWay::ring:
        exchange.add_ring(total, backward);
        break;
      case ContextWay::all_to_all:
        exchange.add_all_to_all(total, backward);
        break;
      case ContextWay::gather:
        exchange.add_gather(total, backward);
        break;
    }
  }
  return total;
}

}  // namespace orthant
