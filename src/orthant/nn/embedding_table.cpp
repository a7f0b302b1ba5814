#include "orthant/nn/embedding_table.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/kernels/rows.h"
#include "orthant/nn/kernels/tensors.h"

namespace orthant::nn {

namespace plain {

at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens) {
  at::Tensor sum;
  for (const TableRows& lookup : lookups) {
    const at::Tensor rows = lookup.table.index_select(0, lookup.ids.view({-1}));
    const at::Tensor all = rows.size(0) == tokens ? rows : rows.repeat({tokens / rows.size(0), 1});
    sum = sum.defined() ? sum.add(all) : all;
  }
  return sum;
}

// In a fixed order of additions: index_add_ goes through the ids in order on the CPU, but uses atomics on CUDA, where
// index_put_ with accumulation sorts them.
void add_table_rows(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& gy) {
  const at::Tensor wide = gy.to(gradient.scalar_type());
  const std::int64_t count = ids.numel();
  const at::Tensor rows = count == gy.size(0) ? wide : wide.view({gy.size(0) / count, count, gy.size(1)}).sum(0);
  const at::Tensor places = ids.view({-1});
  if (gradient.is_cpu()) {
    gradient.index_add_(0, places, rows);
  } else {
    gradient.index_put_({places}, rows, /*accumulate=*/true);
  }
}

}  // namespace plain

namespace fused {
namespace {

template <class T>
void sum_rows_of(const at::Tensor& out, const std::vector<TableRows>& lookups) {
  struct Source {
    const T* table;
    const std::int64_t* ids;
    std::int64_t num_ids;
  };
  std::vector<Source> sources;
  for (const TableRows& lookup : lookups) {
    sources.push_back(
        {lookup.table.const_data_ptr<T>(), lookup.ids.const_data_ptr<std::int64_t>(), lookup.ids.numel()});
  }
  const auto& table = kernels::kernels<kernels::RowKernels<T>>();
  const std::int64_t width = out.size(1);
  T* to = out.mutable_data_ptr<T>();
  kernels::for_rows(out.size(0), width, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const T*> rows(sources.size());
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::size_t k = 0; k < sources.size(); ++k) {
        rows[k] = sources[k].table + sources[k].ids[t % sources[k].num_ids] * width;
      }
      table.sum_rows(to + t * width, rows.data(), static_cast<std::int64_t>(rows.size()), width);
    }
  });
}

// Threads take columns, so that each element's additions keep the order of tokens.
template <class T>
void add_rows_to(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& gy) {
  constexpr std::int64_t kColumns = 128;
  const auto& table = kernels::kernels<kernels::RowKernels<T>>();
  const std::int64_t tokens = gy.size(0);
  const std::int64_t width = gy.size(1);
  const std::int64_t num_ids = ids.numel();
  const auto* id = ids.const_data_ptr<std::int64_t>();
  T* to = gradient.mutable_data_ptr<T>();
  const T* from = gy.const_data_ptr<T>();
  at::parallel_for(0, (width + kColumns - 1) / kColumns, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kColumns;
    const std::int64_t count = std::min(end * kColumns, width) - first;
    for (std::int64_t t = 0; t < tokens; ++t) {
      table.add_row(to + id[t % num_ids] * width + first, from + t * width + first, count);
    }
  });
}

}  // namespace

at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens) {
  at::Tensor out = at::empty({tokens, lookups[0].table.size(1)}, lookups[0].table.options());
  kernels::with_element(out, [&](auto element) { sum_rows_of<decltype(element)>(out, lookups); });
  return out;
}

void add_table_rows(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& gy) {
  kernels::with_element(gradient, [&](auto element) { add_rows_to<decltype(element)>(gradient, ids, gy); });
}

}  // namespace fused

}  // namespace orthant::nn
