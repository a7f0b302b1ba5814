#include "orthant/ops/embedding/embedding_table.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/kernels/rows.h"
#include "orthant/nn/kernels/tensors.h"

namespace orthant::nn {
namespace {

bool rows_are_cut(const TableRows& rows) {
  return rows.cut.dim == 0;
}

// Null: all are whole. See Note [Cut tables].
const TableRows* first_cut(const std::vector<TableRows>& lookups) {
  const auto found = std::find_if(lookups.begin(), lookups.end(), rows_are_cut);
  return found == lookups.end() ? nullptr : &*found;
}

}  // namespace

namespace plain {
namespace {

// [tokens, 1] bool: whose id is held elsewhere.
at::Tensor elsewhere(const TableRows& rows, std::int64_t tokens) {
  const at::Tensor ids = rows.ids.view({-1});
  const at::Tensor outside = ids.lt(rows.cut.first).logical_or_(ids.ge(rows.cut.first + rows.table.size(0)));
  const bool repeats = ids.size(0) != tokens;
  return (repeats ? outside.repeat({tokens / ids.size(0)}) : outside).unsqueeze(1);
}

// Where the ids' rows lie in the table. Those held elsewhere get any place, spread out: additions to one place would
// queue up.
at::Tensor places(const TableRows& rows) {
  const at::Tensor ids = rows.ids.view({-1});
  return rows_are_cut(rows) ? ids.sub(rows.cut.first).remainder_(rows.table.size(0)) : ids;
}

}  // namespace

at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens) {
  const TableRows* const owner = first_cut(lookups);
  at::Tensor sum;
  for (const TableRows& lookup : lookups) {
    const bool empty = lookup.table.size(0) == 0;
    const at::Tensor rows = empty ? at::zeros({tokens, lookup.table.size(1)}, lookup.table.options())
                                  : lookup.table.index_select(0, places(lookup));
    const at::Tensor all = rows.size(0) == tokens ? rows : rows.repeat({tokens / rows.size(0), 1});
    if (owner != nullptr) all.masked_fill_(elsewhere(rows_are_cut(lookup) ? lookup : *owner, tokens), 0);
    sum = sum.defined() ? sum.add_(all) : all;
  }
  return sum;
}

// In a fixed order of additions: index_add_ goes through the ids in order on the CPU, but uses atomics on CUDA, where
// index_put_ with accumulation sorts them.
void add_table_rows(const TableRows& gradient, const at::Tensor& gy) {
  if (gradient.table.size(0) == 0) return;
  const at::Tensor wide = gy.to(gradient.table.scalar_type());
  const std::int64_t count = gradient.ids.numel();
  at::Tensor rows = count == gy.size(0) ? wide : wide.view({gy.size(0) / count, count, gy.size(1)}).sum(0);
  if (rows_are_cut(gradient)) rows = rows.masked_fill(elsewhere(gradient, count), 0);
  if (gradient.table.is_cpu()) {
    gradient.table.index_add_(0, places(gradient), rows);
  } else {
    gradient.table.index_put_({places(gradient)}, rows, /*accumulate=*/true);
  }
}

}  // namespace plain

namespace fused {
namespace {

template <class T>
struct Source {
  const T* table;
  const std::int64_t* ids;
  std::int64_t num_ids;
  std::int64_t first = 0;
  std::int64_t entries = 0;
  bool cut = false;

  explicit Source(const TableRows& rows)
      : table(rows.table.const_data_ptr<T>()),
        ids(rows.ids.const_data_ptr<std::int64_t>()),
        num_ids(rows.ids.numel()),
        first(rows_are_cut(rows) ? rows.cut.first : 0),
        entries(rows.table.size(0)),
        cut(rows_are_cut(rows)) {}

  std::int64_t place(std::int64_t token) const { return ids[token % num_ids] - first; }
  bool holds(std::int64_t place) const { return !cut || (place >= 0 && place < entries); }
};

template <class T>
void sum_rows_of(const at::Tensor& out, const std::vector<TableRows>& lookups) {
  const std::vector<Source<T>> sources(lookups.begin(), lookups.end());
  const TableRows* const owner = first_cut(lookups);
  const Source<T>* const decides = owner == nullptr ? nullptr : sources.data() + (owner - lookups.data());
  const auto& table = kernels::kernels<kernels::RowKernels<T>>();
  const std::int64_t width = out.size(1);
  T* to = out.mutable_data_ptr<T>();
  kernels::for_rows(out.size(0), width, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const T*> rows(sources.size());
    for (std::int64_t t = begin; t < end; ++t) {
      const bool adds_whole = decides == nullptr || decides->holds(decides->place(t));
      std::int64_t num_rows = 0;
      for (const Source<T>& source : sources) {
        const std::int64_t place = source.place(t);
        if (source.cut ? source.holds(place) : adds_whole) rows[num_rows++] = source.table + place * width;
      }
      if (num_rows > 0) {
        table.sum_rows(to + t * width, rows.data(), num_rows, width);
      } else {
        std::fill_n(to + t * width, width, T(0));
      }
    }
  });
}

// Threads take columns, so that each element's additions keep the order of tokens.
template <class T>
void add_rows_to(const TableRows& gradient, const at::Tensor& gy) {
  constexpr std::int64_t kColumns = 128;
  const auto& table = kernels::kernels<kernels::RowKernels<T>>();
  const Source<T> places(gradient);
  const std::int64_t tokens = gy.size(0);
  const std::int64_t width = gy.size(1);
  T* to = gradient.table.mutable_data_ptr<T>();
  const T* from = gy.const_data_ptr<T>();
  at::parallel_for(0, (width + kColumns - 1) / kColumns, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kColumns;
    const std::int64_t count = std::min(end * kColumns, width) - first;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t place = places.place(t);
      if (places.holds(place)) table.add_row(to + place * width + first, from + t * width + first, count);
    }
  });
}

}  // namespace

at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens) {
  at::Tensor out = at::empty({tokens, lookups[0].table.size(1)}, lookups[0].table.options());
  kernels::with_element(out, [&](auto element) { sum_rows_of<decltype(element)>(out, lookups); });
  return out;
}

void add_table_rows(const TableRows& gradient, const at::Tensor& gy) {
  kernels::with_element(gradient.table, [&](auto element) { add_rows_to<decltype(element)>(gradient, gy); });
}

}  // namespace fused

}  // namespace orthant::nn
