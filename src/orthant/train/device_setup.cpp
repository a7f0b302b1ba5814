#include "orthant/train/device_setup.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <set>

#include "orthant/base/error.h"
#include "orthant/cuda/kernel.h"
#include "orthant/interpret/step_variants.h"
#include "orthant/launch/cache_folder.h"
#include "orthant/layout/expert_view.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/program/float8.h"

namespace orthant {
namespace {

constexpr const char* kWithoutFloat8 = "use precision.compute=bfloat16";

void check_float8(const TrainerOptions& options) {
  if (!options.precision.float8 || options.float8_by_formulas || options.device.is_cuda()) return;
  throw ConfigError(fmt::format("precision.compute=float8 needs a CUDA device from sm_90 on, and this run trains on {}",
                                options.device.str()),
                    {.remedy = fmt::format("use --device cuda, or {}", kWithoutFloat8)});
}

// Of "sm_90a": 90.
int generation_of(const std::string& architecture) {
  return std::stoi(architecture.substr(architecture.find('_') + 1));
}

}  // namespace

void check_float8_card(bool has_kernels, const std::string& architecture) {
  if (!has_kernels) {
    throw ConfigError("precision.compute=float8, and kernels of this device cannot be compiled",
                      {.remedy = kWithoutFloat8});
  }
  if (generation_of(architecture) >= kFloat8Generation) return;
  throw ConfigError(fmt::format("precision.compute=float8 needs a card from sm_{} on, which multiplies float8 with a "
                                "scale for each row; this one is {}",
                                kFloat8Generation, architecture),
                    {.remedy = kWithoutFloat8});
}

void check_device(const TrainerOptions& options) {
  const bool measures = options.product_plans == ProductChoice::measured && !options.product_library;
  if (measures && !options.device.is_cuda()) {
    throw ConfigError(fmt::format("train.product_plans=measured needs a CUDA device, and this run trains on {}",
                                  options.device.str()),
                      {.remedy = "use --device cuda, or train.product_plans=heuristic"});
  }
  if (options.record_steps == RecordSteps::on && !options.device.is_cuda()) {
    throw ConfigError(
        fmt::format("train.cuda_graph=on needs a CUDA device, and this run trains on {}", options.device.str()),
        {.remedy = "use --device cuda, or train.cuda_graph=auto"});
  }
  if (options.verify_replicas > 0 && !repeats_to_the_bit(options)) {
    throw ConfigError(
        "train.verify_replicas on a GPU without train.deterministic: ranks that hold the same would differ "
        "in the order of their sums",
        {.remedy = "set train.deterministic=true, or train.verify_replicas=0"});
  }
  check_float8(options);
  if (!options.precision.tf32) return;
  if (!options.device.is_cuda()) {
    throw ConfigError(
        fmt::format("precision.tf32 needs a CUDA device, and this run trains on {}", options.device.str()),
        {.remedy = "use --device cuda, or leave precision.tf32 out"});
  }
  if (options.precision.compute != DType::float32) {
    throw ConfigError(fmt::format("precision.tf32 with compute {}: it rounds products of float32 alone",
                                  dtype_name(options.precision.compute)),
                      {.remedy = "use compute float32, or leave precision.tf32 out"});
  }
}

void permit_tf32(bool permitted) {
  at::globalContext().setAllowTF32CuBLAS(permitted);
  at::globalContext().setAllowTF32CuDNN(permitted);
}

namespace {

// Where kernels are kept. Makes the context that they are loaded into.
cuda::KernelLibrary& open_kernels(at::Device device, const std::function<void(const std::string&)>& say) {
  at::empty({1}, at::TensorOptions().device(device));
  auto& library = cuda::KernelLibrary::of_process();
  library.configure({launch::cache_folder(launch::process_environment()), say});
  return library;
}

nn::device::Variants variants_of(const GraphSpec& graph, at::ScalarType dtype) {
  std::set<std::int64_t> widths;
  for (const auto& value : graph.values) {
    if (value.shape.size() == 3 && !value.opaque) widths.insert(value.shape.back());
  }
  return nn::device::step_variants(dtype, widths);
}

}  // namespace

void prepare_device(const TrainerOptions& options, const GraphSpec& graph) {
  check_device(options);
  if (!options.device.is_cuda()) return;
  permit_tf32(options.precision.tf32);
  const c10::DeviceGuard guard(options.device);
  auto& library = open_kernels(options.device, options.say);
  if (options.precision.float8) {
    const bool available = library.available();
    check_float8_card(available, available ? library.architecture() : "");
  }
  const auto dtype = scalar_type(options.precision.compute);
  library.prepare(variants_of(graph, dtype));
  if (routes_tokens(graph) && library.available()) library.prepare(nn::device::expert_variants(dtype));
  if (options.precision.float8) library.prepare(nn::device::float8_variants(dtype, float8_widths(graph)));
}

void prepare_kernels(at::Device device, const std::function<void(const std::string&)>& say, at::ScalarType dtype,
                     const GraphSpec& graph, const nn::device::Variants& more) {
  permit_tf32(false);
  const c10::DeviceGuard guard(device);
  auto& library = open_kernels(device, say);
  auto variants = variants_of(graph, dtype);
  variants.insert(variants.end(), more.begin(), more.end());
  library.prepare(variants);
  if (routes_tokens(graph) && library.available()) library.prepare(nn::device::expert_variants(dtype));
}

at::Tensor to_device(const at::Tensor& x, at::Device device) {
  if (device.is_cpu() || !x.is_cpu()) return x.to(device);
  return (x.is_pinned() ? x : x.pin_memory()).to(device, /*non_blocking=*/true);
}

bool repeats_to_the_bit(const TrainerOptions& options) {
  return options.device.is_cpu() || options.deterministic.value_or(false);
}

}  // namespace orthant
