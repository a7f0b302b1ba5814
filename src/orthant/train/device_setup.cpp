#include "orthant/train/device_setup.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <set>

#include "orthant/cuda/kernel.h"
#include "orthant/launch/cache_folder.h"
#include "orthant/nn/device_variants.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
void prepare_device(const TrainerOptions& options, const GraphSpec& graph) {
  if (!options.device.is_cuda()) return;
  const c10::DeviceGuard guard(options.device);
  at::empty({1}, at::TensorOptions().device(options.device));  // makes the context that kernels are loaded into
  auto& library = cuda::KernelLibrary::of_process();
  library.configure({launch::cache_folder(launch::process_environment()), options.say});
  std::set<std::int64_t> widths;
  for (const auto& value : graph.values) {
    if (value.shape.size() == 3 && !value.opaque) widths.insert(value.shape.back());
  }
  library.prepare(nn::device::step_variants(scalar_type(options.precision.compute), widths));
}

at::Tensor to_device(const at::Tensor& x, at::Device device) {
  if (device.is_cpu() || !x.is_cpu()) return x.to(device);
  return (x.is_pinned() ? x : x.pin_memory()).to(device, /*non_blocking=*/true);
}

bool repeats_to_the_bit(const TrainerOptions& options) {
  return options.device.is_cpu() || options.deterministic.value_or(false);
}

}  // namespace orthant
