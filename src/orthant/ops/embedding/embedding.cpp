#include "orthant/ops/embedding/embedding.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/embedding/embedding_table.h"

namespace orthant::nn {
namespace {

bool is_cut(const Parameter& table) {
  return table.cut.dim == 0;
}

// On the CPU, where a wrong id would read and write foreign memory; a device checks by itself and must not be waited
// for. Of a cut table it is told what to check: an id that no rank holds would give zeros.
void check_ids(const Lookup& lookup) {
  const std::int64_t entries = lookup.entries > 0 ? lookup.entries : lookup.table->value.size(0);
  if (lookup.ids.numel() == 0) return;
  if (!lookup.ids.is_cpu()) {
    if (is_cut(*lookup.table)) at::_assert_async(lookup.ids.ge(0).logical_and_(lookup.ids.lt(entries)).all());
    return;
  }
  const auto [least, largest] = at::aminmax(lookup.ids);
  const std::int64_t low = least.item<std::int64_t>();
  const std::int64_t high = largest.item<std::int64_t>();
  if (low >= 0 && high < entries) return;
  throw DataError(fmt::format("id {} of a table with {} entries", low < 0 ? low : high, entries),
                  {.remedy = "use ids from 0 on and a vocab_size above the largest"});
}

// [rows, sequence], and what is looked up on this rank.
struct Tokens {
  at::DimVector shape;
  std::int64_t count = 0;  // of all ranks
  bool any_cut = false;    // a table is cut: this rank looks up all tokens, and the ranks' sums are added

  Tokens(const std::vector<Lookup>& lookups, const Pass& pass) {
    for (const Lookup& lookup : lookups) {
      if (lookup.ids.dim() == 2) shape = at::DimVector(lookup.ids.sizes());
      any_cut = any_cut || is_cut(*lookup.table);
    }
    if (shape.size() != 2) throw InternalError("embedding: no lookup has ids of shape [rows, sequence]");
    count = shape[0] * shape[1];
    if (!pass.cuts_tokens() || (shape[0] == pass.rows && shape[1] == pass.sequence)) return;
    throw InternalError(fmt::format("embedding: ids of shape [{}, {}] in a pass of {} rows of {} tokens", shape[0],
                                    shape[1], pass.rows, pass.sequence));
  }
};

// The ids of this rank's tokens, where the pass cuts them.
at::Tensor own_ids(const at::Tensor& ids, const Pass& pass) {
  if (!pass.cuts_tokens()) return ids.contiguous();
  const Range own = pass.own_tokens();
  if (ids.numel() == pass.num_tokens()) return ids.contiguous().view({-1}).narrow(0, own.begin, own.size());
  return ids.index_select(0, at::arange(own.begin, own.end, ids.options()).remainder_(pass.sequence));
}

// Of this rank's entries, where a table is cut.
at::Tensor sum_here(const std::vector<Lookup>& lookups, const Tokens& tokens, const Pass& pass) {
  std::vector<TableRows> rows;
  bool served = true;
  for (const Lookup& lookup : lookups) {
    check_ids(lookup);
    const at::Tensor ids = tokens.any_cut ? lookup.ids.contiguous() : own_ids(lookup.ids, pass);
    rows.push_back({ids, lookup.table->value.contiguous(), lookup.table->cut, lookup.entries});
    served = served && kernels::serve(rows.back().table);
  }
  const std::int64_t count = tokens.any_cut || !pass.cuts_tokens() ? tokens.count : pass.own_tokens().size();
  if (served) return fused::sum_table_rows(rows, count);
  return device::serves_lookups(rows) ? device::sum_table_rows(rows, count) : plain::sum_table_rows(rows, count);
}

}  // namespace

void add_table_gradient(Parameter& table, const at::Tensor& ids, const at::Tensor& gy) {
  if (table.fresh) table.gradient.zero_();
  table.fresh = false;
  const TableRows gradient = {ids, table.gradient, table.cut};
  if (device::serves_rows(gradient, gy)) return device::add_table_rows(gradient, gy);
  const at::Tensor wide = gy.to(table.gradient.scalar_type());
  if (kernels::serve(table.gradient) && table.gradient.is_contiguous()) {
    fused::add_table_rows(gradient, wide);
  } else {
    plain::add_table_rows(gradient, wide);
  }
}

at::Tensor table_sum(const std::vector<Lookup>& lookups, const Pass& pass) {
  return sum_here(lookups, Tokens(lookups, pass), pass);
}

at::Tensor looked_up_ids(const Lookup& lookup, const Pass& pass) {
  return is_cut(*lookup.table) ? lookup.ids.contiguous() : own_ids(lookup.ids, pass);
}

}  // namespace orthant::nn
