#include "orthant/nn/device_kernels.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <bit>

namespace orthant::nn::device {
namespace {

constexpr std::uint32_t kBlockThreads = 256;
constexpr std::uintptr_t kVectorBytes = 16;

bool serves_memory(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return has_kernels(x.device()) && (type == at::kBFloat16 || type == at::kHalf || type == at::kFloat) &&
         cuda::KernelLibrary::of_process().available();
}

}  // namespace

bool has_kernels(at::Device device) {
  return cuda::KernelLibrary::of_process().on_host() ? device.is_cpu() : device.is_cuda();
}

bool serves(const at::Tensor& x) {
  return x.is_contiguous() && serves_memory(x);
}

bool serves_rows(const at::Tensor& x) {
  return x.dim() == 2 && x.stride(1) == 1 && x.stride(0) >= x.size(1) && serves_memory(x);
}

at::Tensor rows_at_borders(std::int64_t rows, std::int64_t width, const at::Tensor& x) {
  const std::int64_t stride = (width + lane(x) - 1) / lane(x) * lane(x);
  return at::empty({rows, stride}, x.options()).narrow(1, 0, width);
}

int element(const at::Tensor& x) {
  return element(x.scalar_type());
}

int element(at::ScalarType type) {
  return static_cast<int>(type == at::kBFloat16 ? cuda::Element::bfloat16
                          : type == at::kHalf   ? cuda::Element::float16
                                                : cuda::Element::float32);
}

std::int64_t lane(const at::Tensor& x) {
  return static_cast<std::int64_t>(kVectorBytes) / x.element_size();
}

bool aligned(std::int64_t width, std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& x : tensors) {
    if (!x.defined()) continue;
    if (width % lane(x) != 0 || reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % kVectorBytes != 0) return false;
  }
  return true;
}

cuda::StreamHandle stream(const at::Tensor& x) {
  if (x.is_cpu()) return nullptr;
  return c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).native_handle();
}

std::int64_t num_vectors(const at::Tensor& x, std::int64_t width) {
  return width == 0 ? 0 : x.numel() / width * ((width + lane(x) - 1) / lane(x));
}

KernelDivisor::KernelDivisor(std::uint32_t by) {
  const auto bits = static_cast<std::uint32_t>(std::bit_width(by - 1));
  factor = static_cast<std::uint32_t>((std::uint64_t{1} << (31 + bits)) / by + 1);
  shift = 31 + bits;
}

KernelVectors::KernelVectors(const at::Tensor& x, std::int64_t row_width)
    : row_vectors(static_cast<std::uint32_t>((row_width + lane(x) - 1) / lane(x))),
      row_pairs((row_vectors + 1) / 2),
      by_row(row_pairs),
      width(static_cast<int>(row_width)) {
  pairs = static_cast<std::uint32_t>(x.numel() / row_width * row_pairs);
}

bool counts_vectors(const at::Tensor& x, std::int64_t width) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return width < kMost && num_vectors(x, width) < kMost;
}

cuda::LaunchShape threads_for(std::int64_t items, const at::Tensor& x, std::int64_t each) {
  const std::int64_t of_block = each * kBlockThreads;
  return {.blocks = static_cast<std::uint32_t>((items + of_block - 1) / of_block),
          .threads = kBlockThreads,
          .stream = stream(x)};
}

}  // namespace orthant::nn::device
