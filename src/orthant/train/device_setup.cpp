#include "orthant/train/device_setup.h"

#include <c10/core/DeviceGuard.h>

#include <set>

#include "orthant/cuda/kernel.h"
#include "orthant/launch/cache_folder.h"
#include "orthant/nn/device_variants.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
namespace {

constexpr std::int64_t kMostChannels = 16384;  // of a value that a norm reads; logits have more

}  // namespace

void prepare_device(const TrainerOptions& options, const GraphSpec& graph) {
  if (!options.device.is_cuda()) return;
  const c10::DeviceGuard guard(options.device);
  auto& library = cuda::KernelLibrary::of_process();
  library.configure({launch::cache_folder(launch::process_environment()), options.say});
  std::set<std::int64_t> widths;
  for (const auto& value : graph.values) {
    const bool hidden = value.shape.size() == 3 && !value.opaque && value.shape.back() <= kMostChannels;
    if (hidden) widths.insert(value.shape.back());
  }
  library.prepare(nn::device::step_variants(scalar_type(options.precision.compute), widths));
}

bool repeats_to_the_bit(const TrainerOptions& options) {
  return options.device.is_cpu() || options.deterministic.value_or(false);
}

}  // namespace orthant
