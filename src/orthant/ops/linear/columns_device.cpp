// Sums over rows on a CUDA device: see columns.cu.
#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/linear/columns.h"

namespace orthant::cuda::sources {
extern const std::string_view columns;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kColumns{"ops/linear/columns.cu", cuda::sources::columns, {"ELEMENT", "ALIGNED"}};
constexpr std::int64_t kVectorsOfBlock = 4;  // ACROSS of sum_columns
constexpr std::int64_t kRowsOfOneStage = 2048;
constexpr std::int64_t kPartBlocks = 528;  // of the first stage: four on each of 132 SMs
constexpr std::int64_t kTurnRows = 64;     // that the warps of a block have under way at a time

// `struct Columns` of columns.cu.
struct Columns {
  float* out = nullptr;
  const void* x = nullptr;
  int adds = 0;
};

Columns columns_of(const ColumnSums& sums) {
  return {data<float>(sums.out), data(sums.x), sums.adds ? 1 : 0};
}

// Of matrices of one shape and dtype. Few rows take fewer threads, which a block begins and ends sooner with.
struct Stage {
  std::uint32_t threads = 1024;
  bool early = false;  // as LaunchShape has it
};
void sum_in_one_stage(const ColumnSums& first, const ColumnSums* second, const Stage& stage = {}) {
  const at::Tensor& x = first.x;
  const std::int64_t of_block = kVectorsOfBlock * lane(x);
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>((x.size(1) + of_block - 1) / of_block),
                                .blocks_y = second == nullptr ? 1U : 2U,
                                .threads = stage.threads,
                                .stream = stream(x),
                                .early = stage.early};
  const int is_aligned = aligned(x.size(1), {x, second == nullptr ? at::Tensor() : second->x}) ? 1 : 0;
  cuda::kernel(kColumns, "sum_columns", {element(x), is_aligned})(
      shape, columns_of(first), second == nullptr ? Columns() : columns_of(*second), static_cast<int>(x.size(0)),
      static_cast<int>(x.size(1)));
}

// [parts, width]; how many follows from the matrix alone.
at::Tensor sum_parts(const at::Tensor& x) {
  const std::int64_t rows = x.size(0), width = x.size(1), of_block = 32 * lane(x);
  const std::int64_t across = (width + of_block - 1) / of_block;
  const std::int64_t most = std::max<std::int64_t>(kPartBlocks / across, 1);
  const std::int64_t rows_of_part = ((rows + most - 1) / most + kTurnRows - 1) / kTurnRows * kTurnRows;
  const std::int64_t parts = (rows + rows_of_part - 1) / rows_of_part;
  at::Tensor sums = at::empty({parts, width}, x.options().dtype(at::kFloat));
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(across),
                                .blocks_y = static_cast<std::uint32_t>(parts),
                                .threads = 256,
                                .stream = stream(x)};
  cuda::kernel(kColumns, "sum_parts", {element(x), aligned(width, {x}) ? 1 : 0})(
      shape, data(sums), data(x), static_cast<int>(rows), static_cast<int>(width), static_cast<int>(rows_of_part));
  return sums;
}

}  // namespace

bool serves_columns(const at::Tensor& x) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return x.dim() == 2 && serves(x) && x.size(0) < kMost && x.size(1) < kMost;
}

void add_column_sums(const ColumnSums& sums) {
  if (sums.x.size(1) == 0) return;
  if (sums.x.size(0) <= kRowsOfOneStage) return sum_in_one_stage(sums, nullptr);
  sum_in_one_stage({sums.out, sum_parts(sums.x), sums.adds}, nullptr, {.threads = 256, .early = true});
}

void add_column_sums(const ColumnSums& first, const ColumnSums& second) {
  const at::Tensor &x = first.x, &y = second.x;
  if (x.size(1) > 0 && x.size(0) <= kRowsOfOneStage && x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type()) {
    return sum_in_one_stage(first, &second);
  }
  add_column_sums(first);
  add_column_sums(second);
}

at::Tensor sum_columns(const at::Tensor& x) {
  at::Tensor out = at::empty({x.size(1)}, x.options().dtype(at::kFloat));
  add_column_sums({out, x, /*adds=*/false});
  return out;
}

Variants columns_variants(at::ScalarType dtype) {
  Variants all = {{&kColumns, {element(at::kFloat), /*ALIGNED=*/1}}};  // of partial sums
  if (dtype != at::kFloat) all.push_back({&kColumns, {element(dtype), /*ALIGNED=*/1}});
  return all;
}

}  // namespace orthant::nn::device
