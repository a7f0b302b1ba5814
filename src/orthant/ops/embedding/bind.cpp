#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "orthant/nn/binding.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/embedding/embedding.h"
#include "orthant/ops/exchange/token_values.h"

namespace orthant {
namespace {

// One table, and how its ids are found.
class TableLookup {
 public:
  TableLookup(const Binding& b, std::size_t number, std::size_t in, nn::Parameter* table)
      : by_(b.attributes().text(fmt::format("by{}", number))), ids_(b.in(in)), table_(table), tables_(&b.tables) {
    entries_ = b.attributes().integer(fmt::format("entries{}", number));
    if (by_ != "counted_positions") return;
    padding_ = b.attributes().integer(fmt::format("padding{}", number));
    first_ = b.attributes().integer(fmt::format("first{}", number));
  }

  nn::Lookup find(Frame& frame) const { return {ids(frame), table_, entries_}; }

 private:
  at::Tensor ids(Frame& frame) const {
    const nn::TokenRows* rows = frame.pass.token_rows;
    if (by_ == "ids") return nn::own_columns(whole_rows(frame), frame.pass);
    if (by_ == "document_positions") {
      return nn::own_columns(nn::document_positions(whole_rows(frame)), frame.pass);
    }
    if (by_ == "counted_positions") {
      const auto real = whole_rows(frame).ne(padding_).to(at::kLong);
      auto counted = real.cumsum(1);
      if (rows != nullptr) counted.sub_((counted - real).gather(1, rows->starts));
      return nn::own_columns(counted.mul_(real).add_(first_ - 1), frame.pass);
    }
    const auto options = at::TensorOptions().dtype(at::kLong).device(table_->value.device());
    if (by_ == "positions" && rows != nullptr) return rows->position;
    if (by_ == "positions") {
      const auto all = tables_->rows("positions", frame.pass.whole_sequence(),
                                     [&](std::int64_t rows) { return at::arange(rows, options); });
      return nn::own_table_rows(all, frame.pass);
    }
    return tables_->rows("zeros", frame.pass.sequence, [&](std::int64_t rows) { return at::zeros({rows}, options); });
  }

  // Every rank has all ids.
  at::Tensor whole_rows(Frame& frame) const { return frame[ids_].view({frame.pass.rows, frame.pass.whole_sequence()}); }

  std::string by_;
  int ids_;
  nn::Parameter* table_;
  Tables* tables_;
  std::int64_t entries_ = 0;
  std::int64_t padding_ = 0;
  std::int64_t first_ = 0;
};

Step bind_embedding(const Binding& b) {
  std::vector<TableLookup> lookups;
  for (std::size_t i = 0; i < b.operation.in.size(); ++i) lookups.emplace_back(b, i, i, b.parameter(i));
  return [lookups, y = b.out(0)](Frame& frame) {
    std::vector<nn::Lookup> found;
    for (const auto& lookup : lookups) found.push_back(lookup.find(frame));
    frame[y] = nn::table_sum(found, frame.pass);
  };
}

// in gy, ids; of the table that the attribute says.
Step bind_embedding_weight(const Binding& b) {
  const auto number = static_cast<std::size_t>(b.attributes().integer("lookup"));
  return [lookup = TableLookup(b, number, 1, b.parameter(0)), gy = b.in(0)](Frame& frame) {
    const nn::Lookup found = lookup.find(frame);
    nn::add_table_gradient(*found.table, nn::looked_up_ids(found, frame.pass), frame[gy]);
  };
}

}  // namespace

std::vector<NamedBinder> embedding_binders() {
  return {{"embedding", bind_embedding}, {"embedding_weight", bind_embedding_weight}};
}

}  // namespace orthant
