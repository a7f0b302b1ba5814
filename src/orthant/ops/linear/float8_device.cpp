// Matrices rounded to e4m3 on a CUDA device: see float8.cu.
#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/linear/float8.h"
#include "orthant/ops/norm/row_shape.h"

namespace orthant::cuda::sources {
extern const std::string_view float8;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kFloat8{"ops/linear/float8.cu", cuda::sources::float8, {"ELEMENT", "VECTORS", "WARPS"}};

constexpr std::int64_t kFloat8Piece = 16;  // of rows and columns
constexpr std::int64_t kFloat8Vectors = 4, kFloat8Warps = 32;
constexpr std::int64_t kFloat8Parts = 16;       // of rows, whose largest a tile reads
constexpr std::int64_t kFloat8LeastRows = 256;  // of a part
constexpr std::int64_t kFloat8Tile = 64;        // TILE of float8.cu

RowShape float8_shape(std::int64_t width, std::int64_t of_lane) {
  return row_shape(width, of_lane, kFloat8Vectors);
}

std::uint32_t float8_blocks(std::int64_t items, std::int64_t each) {
  return static_cast<std::uint32_t>((items + each - 1) / each);
}

Float8Matrix empty_float8(const at::Tensor& x, std::int64_t rows, std::int64_t width) {
  return {at::empty({rows, width}, x.options().dtype(at::kFloat8_e4m3fn)),
          at::empty({rows, 1}, x.options().dtype(at::kFloat))};
}

}  // namespace

bool serves_float8(const at::Tensor& x) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return x.dim() == 2 && serves(x) && x.size(1) > 0 && x.size(1) % kFloat8Piece == 0 && x.size(0) < kMost &&
         x.size(1) < kMost && aligned(x.size(1), {x});
}

bool serves_float8_turned(const at::Tensor& x) {
  return serves_float8(x) && x.size(0) > 0 && x.size(0) % kFloat8Piece == 0;
}

Float8Matrix round_float8(const at::Tensor& x) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  Float8Matrix out = empty_float8(x, rows, width);
  if (rows == 0) return out;
  const RowShape row = float8_shape(width, lane(x));
  if (row.warps > kFloat8Warps) {
    const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(rows), .threads = 1024, .stream = stream(x)};
    cuda::kernel(kFloat8, "float8_long_rows", {element(x), 1, 1})(
        shape, data<std::uint8_t>(out.values), data<float>(out.scales), data(x), static_cast<int>(width));
    return out;
  }
  const cuda::LaunchShape shape{.blocks = float8_blocks(rows, row.rows()),
                                .threads = static_cast<std::uint32_t>(row.threads()),
                                .stream = stream(x)};
  cuda::kernel(kFloat8, "float8_rows", {element(x), row.vectors, row.warps})(
      shape, data<std::uint8_t>(out.values), data<float>(out.scales), data(x), static_cast<int>(rows),
      static_cast<int>(width));
  return out;
}

Float8Matrix round_float8_turned(const at::Tensor& x) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  Float8Matrix out = empty_float8(x, width, rows);
  const std::int64_t of_part = std::max((rows + kFloat8Parts - 1) / kFloat8Parts, kFloat8LeastRows);
  const std::int64_t parts = (rows + of_part - 1) / of_part;
  const at::Tensor largest = at::empty({parts, width}, x.options().dtype(at::kFloat));
  const std::initializer_list<int> values = {element(x), 1, 1};
  const cuda::LaunchShape by_columns{.blocks = float8_blocks(width, 32 * lane(x)),
                                     .blocks_y = static_cast<std::uint32_t>(parts),
                                     .threads = 256,
                                     .stream = stream(x)};
  cuda::kernel(kFloat8, "float8_largest", values)(by_columns, data<float>(largest), data(x), static_cast<int>(rows),
                                                  static_cast<int>(width), static_cast<int>(of_part));
  const cuda::LaunchShape by_tiles{.blocks = float8_blocks(width, kFloat8Tile),
                                   .blocks_y = float8_blocks(rows, kFloat8Tile),
                                   .threads = 256,
                                   .stream = stream(x)};
  cuda::kernel(kFloat8, "float8_turned", values)(by_tiles, data<std::uint8_t>(out.values), data<float>(out.scales),
                                                 data<float>(largest), static_cast<int>(parts), data(x),
                                                 static_cast<int>(rows), static_cast<int>(width));
  return out;
}

Variants float8_variants(at::ScalarType dtype, const std::set<std::int64_t>& widths) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(c10::elementSize(dtype));
  Variants all = {{&kFloat8, {element(dtype), 1, 1}}};  // which turns weights, too
  for (const std::int64_t width : widths) {
    const RowShape row = float8_shape(width, vector);
    if (row.warps <= kFloat8Warps) all.push_back({&kFloat8, {element(dtype), row.vectors, row.warps}});
  }
  return all;
}

}  // namespace orthant::nn::device
