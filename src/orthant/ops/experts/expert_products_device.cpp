// Products of experts on a CUDA device: see expert_product.cu.
#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/experts/expert_products.h"

namespace orthant::cuda::sources {
extern const std::string_view expert_product;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kExpertProduct{
    "ops/experts/expert_product.cu", cuda::sources::expert_product, {"ELEMENT", "FORM", "WGMMA"}};

// As in expert_product.cu.
enum Form : int { kForward = 0, kBack = 1, kGradient = 2 };
constexpr std::int64_t kTall = 128;
constexpr std::int64_t kDepth = 64;
constexpr std::uint32_t kProductThreads = 256;
constexpr std::int64_t kMostExperts = 1024;
constexpr std::int64_t kPieceElements = 8;  // that lines and columns are multiples of

// How a card multiplies tiles.
struct Tiles {
  bool wgmma;

  explicit Tiles(bool single_warps = false)
      : wgmma(!single_warps && cuda::KernelLibrary::of_process().architecture() == "sm_90a") {}
  std::int64_t wide() const { return wgmma ? 256 : 128; }
  std::int64_t shared_bytes() const { return (wgmma ? 4 : 3) * (kTall + wide()) * kDepth * 2; }
};

std::int64_t pieces(std::int64_t size, std::int64_t piece) {
  return (size + piece - 1) / piece;
}

const cuda::Kernel& kernel_of(const char* name, const at::Tensor& x, Form form, const Tiles& tiles) {
  return cuda::kernel(kExpertProduct, name, {element(x), form, tiles.wgmma ? 1 : 0});
}

cuda::LaunchShape shape_of(std::int64_t blocks, std::int64_t blocks_y, const at::Tensor& x, const Tiles& tiles) {
  return {.blocks = static_cast<std::uint32_t>(blocks),
          .blocks_y = static_cast<std::uint32_t>(blocks_y),
          .threads = kProductThreads,
          .shared_bytes = static_cast<std::uint32_t>(tiles.shared_bytes()),
          .stream = stream(x)};
}

// Where rows of each expert end, and their tiles: [2, experts].
at::Tensor borders_of(const HeldRows& held, const at::Tensor& rows) {
  const std::int64_t experts = held.experts();
  at::Tensor borders = at::empty({2, experts}, held.counts.options().dtype(at::kInt));
  const cuda::LaunchShape shape{.blocks = 1, .threads = kProductThreads, .stream = stream(rows)};
  kernel_of("expert_borders", rows, kForward, Tiles())(shape, data<int>(borders), data<std::int64_t>(held.counts),
                                                       held.senders, static_cast<int>(experts));
  return borders;
}

// Whether ATen has a grouped product that reads borders on the device.
bool library_groups(const at::Tensor& rows, GroupedBy by) {
  if (by != GroupedBy::library || !rows.is_cuda() || rows.scalar_type() != at::kBFloat16) return false;
  const auto& card = cuda::KernelLibrary::of_process().architecture();
  return card == "sm_90a" || card == "sm_100a";
}

at::Tensor multiply(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight, Form form, GroupedBy by) {
  const std::int64_t experts = held.experts(), count = rows.size(0), depth = rows.size(1);
  const std::int64_t columns = form == kForward ? weight.size(0) / experts : weight.size(1);
  const at::Tensor borders = borders_of(held, rows);
  if (count > 0 && library_groups(rows, by)) {
    const at::Tensor weights = weight.view({experts, weight.size(0) / experts, weight.size(1)});
    return at::_grouped_mm(rows, form == kForward ? weights.transpose(1, 2) : weights, borders[0]);
  }
  at::Tensor out = at::empty({count, columns}, rows.options());
  if (out.numel() == 0) return out;
  const Tiles tiles(by == GroupedBy::single_warps);
  // Every expert may end in a tile that is not full.
  const std::int64_t most_tiles = count / kTall + std::min(experts, count);
  kernel_of("expert_product", rows, form, tiles)(shape_of(most_tiles * pieces(columns, tiles.wide()), 1, rows, tiles),
                                                 data(out), data(rows), data(weight), data<int>(borders),
                                                 static_cast<int>(experts), static_cast<int>(columns),
                                                 static_cast<int>(depth), static_cast<int>(most_tiles));
  return out;
}

// Rows of a product, and what its weight or gradient is.
bool serves_rows_of(const at::Tensor& rows) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
  return rows.dim() == 2 && serves(rows) && rows.size(0) < kMostRows && aligned(rows.size(1), {rows}) &&
         Tiles().shared_bytes() <= cuda::KernelLibrary::of_process().most_shared_bytes();
}
bool serves_joined(const at::Tensor& joined, at::ScalarType type, const HeldRows& held) {
  return joined.is_contiguous() && aligned(joined.size(1), {joined}) &&
         serves_experts(type, held.experts(), joined.size(0) / held.experts(), joined.size(1));
}

}  // namespace

bool serves_experts(at::ScalarType type, std::int64_t experts, std::int64_t out, std::int64_t in) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return (type == at::kBFloat16 || type == at::kHalf) && experts <= kMostExperts && out % kPieceElements == 0 &&
         in % kPieceElements == 0 && out > 0 && in > 0 && out < kMost && in < kMost;
}

bool serves_experts(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight) {
  return serves_rows_of(rows) && weight.scalar_type() == rows.scalar_type() &&
         serves_joined(weight, rows.scalar_type(), held);
}

bool serves_expert_gradients(const Parameter& weight, const at::Tensor& gy, const at::Tensor& rows,
                             const HeldRows& held) {
  return serves_rows_of(rows) && serves_rows_of(gy) && gy.scalar_type() == rows.scalar_type() &&
         weight.gradient.scalar_type() == at::kFloat && serves_joined(weight.gradient, rows.scalar_type(), held);
}

at::Tensor expert_products(const at::Tensor& rows, const HeldRows& held, const at::Tensor& weight, GroupedBy by) {
  return multiply(rows, held, weight, kForward, by);
}

at::Tensor expert_products_back(const at::Tensor& gy, const HeldRows& held, const at::Tensor& weight, GroupedBy by) {
  return multiply(gy, held, weight, kBack, by);
}

void add_expert_gradients(Parameter& weight, const at::Tensor& gy, const at::Tensor& rows, const HeldRows& held,
                          bool single_warps) {
  const std::int64_t lines = gy.size(1), columns = rows.size(1);
  const at::Tensor borders = borders_of(held, rows);
  const Tiles tiles(single_warps);
  kernel_of("expert_gradient", rows, kGradient, tiles)(
      shape_of(pieces(lines, kTall) * pieces(columns, tiles.wide()), held.experts(), rows, tiles),
      data<float>(weight.gradient), data(gy), data(rows), data<int>(borders), static_cast<int>(lines),
      static_cast<int>(columns), weight.fresh ? 0 : 1);
  weight.fresh = false;
}

Variants expert_variants(at::ScalarType dtype) {
  Variants all;
  if (dtype != at::kBFloat16 && dtype != at::kHalf && dtype != at::kFloat) return all;
  all = expert_rows_variants(dtype);
  if (dtype == at::kFloat) return all;
  for (const int form : {kForward, kBack, kGradient}) {
    all.push_back({&kExpertProduct, {element(dtype), form, Tiles().wgmma ? 1 : 0}});
  }
  return all;
}

}  // namespace orthant::nn::device
