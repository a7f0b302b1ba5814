// Rows of embedding tables on a CUDA device: see embedding_table.cu.
#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/embedding/embedding_table.h"

namespace orthant::cuda::sources {
extern const std::string_view embedding_table;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kTable{"ops/embedding/embedding_table.cu", cuda::sources::embedding_table, {"ELEMENT", "ALIGNED"}};

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr std::uint32_t kTokenThreads = 256;
constexpr std::int64_t kTokensOfBlock = 2;  // TOKENS of look_up
constexpr std::int64_t kPart = 64;          // PART of add_rows
constexpr std::size_t kMostTables = 3;      // TABLES of look_up

std::int64_t first_entry(const TableRows& rows) {
  return rows.cut.dim == 0 ? rows.cut.first : 0;
}

// `struct Lookups` of embedding_table.cu.
struct KernelLookup {
  const void* table = nullptr;
  const void* ids = nullptr;
  std::int64_t first = 0;
  std::int64_t entries = 0;
  std::int64_t all_entries = 0;
  std::uint32_t num_ids = 1;
  KernelDivisor by_ids{1};
};
struct KernelLookups {
  KernelLookup of[kMostTables];
  int count = 0;
};
static_assert(sizeof(KernelLookups) == 56 * kMostTables + 8);

}  // namespace

bool serves_lookups(const std::vector<TableRows>& lookups) {
  // A cut table beside others decides who adds their rows (Note [Cut tables]); alone it decides for itself.
  const bool cut = lookups.front().cut.dim == 0;
  if (lookups.size() > kMostTables) return false;
  for (const TableRows& lookup : lookups) {
    if (!serves(lookup.table) || lookup.table.size(1) == 0 || lookup.table.size(0) >= kMostTokens) return false;
    if (lookup.ids.numel() >= kMostTokens) return false;
    if (lookups.size() > 1 && (cut || lookup.cut.dim == 0)) return false;
  }
  return true;
}

at::Tensor sum_table_rows(const std::vector<TableRows>& lookups, std::int64_t tokens) {
  const at::Tensor& first = lookups.front().table;
  const std::int64_t width = first.size(1);
  at::Tensor out = at::empty({tokens, width}, first.options());
  if (out.numel() == 0) return out;
  KernelLookups made;
  bool borders = true;
  for (const TableRows& lookup : lookups) {
    const std::int64_t entries = lookup.table.size(0), ids = lookup.ids.numel();
    KernelLookup& one = made.of[made.count++];
    one.table = data(lookup.table);
    one.ids = data(lookup.ids);
    one.first = first_entry(lookup);
    one.entries = entries;
    one.all_entries = std::max(lookup.all_entries, entries);
    one.num_ids = static_cast<std::uint32_t>(ids);
    one.by_ids = KernelDivisor(one.num_ids);
    borders = borders && aligned(width, {out, lookup.table});
  }
  const std::int64_t row_warps = (width + 32 * lane(out) - 1) / (32 * lane(out));
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>((tokens + kTokensOfBlock - 1) / kTokensOfBlock),
                                .threads = static_cast<std::uint32_t>(std::min<std::int64_t>(32 * row_warps, 256)),
                                .stream = stream(out)};
  cuda::kernel(kTable, "look_up", {element(out), borders ? 1 : 0})(shape, data(out), made, static_cast<int>(tokens),
                                                                   static_cast<int>(width));
  return out;
}

bool serves_rows(const TableRows& gradient, const at::Tensor& gy) {
  return serves(gy) && gradient.table.scalar_type() == at::kFloat && gradient.table.is_contiguous() &&
         gradient.ids.numel() == gy.size(0) && gy.size(0) < kMostTokens;
}

void add_table_rows(const TableRows& gradient, const at::Tensor& gy) {
  if (gy.numel() == 0 || gradient.table.size(0) == 0) return;
  const auto [ids, order] = at::sort(gradient.ids.view({-1}), /*stable=*/true, 0, /*descending=*/false);
  const std::int64_t tokens = gy.size(0), width = gy.size(1), num_parts = (tokens + kPart - 1) / kPart;
  const at::Tensor parts = at::empty({2 * num_parts, width}, gradient.table.options());
  const int is_aligned = aligned(width, {gy}) ? 1 : 0;
  const auto start = [&](const char* function, std::int64_t blocks, auto... arguments) {
    const cuda::LaunchShape shape{
        .blocks = static_cast<std::uint32_t>(blocks), .threads = kTokenThreads, .stream = stream(gy)};
    cuda::kernel(kTable, function, {element(gy), is_aligned})(shape, arguments..., static_cast<int>(tokens),
                                                              first_entry(gradient), gradient.table.size(0),
                                                              static_cast<int>(width));
  };
  start("add_rows", tokens, data(gradient.table), data(parts), data(gy), data(ids), data(order));
  if (num_parts > 1) start("add_parts", num_parts - 1, data(gradient.table), data(parts), data(ids));
}

Variants embedding_variants(at::ScalarType dtype) {
  return {{&kTable, {element(dtype), /*ALIGNED=*/1}}};
}

}  // namespace orthant::nn::device
