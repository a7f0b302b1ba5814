#include "orthant/cuda/driver.h"

#include <fmt/format.h>

#include <array>

#include "orthant/base/error.h"

namespace orthant::cuda {
namespace {

// Numbers of the driver's interface.
constexpr int kMaxSharedBytesOfBlock = 97;  // as far as a kernel asks for it
constexpr int kMultiprocessors = 16;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kMaxDynamicSharedBytes = 8;

constexpr int kEarlyStarts = 9;  // generation

// CUlaunchAttribute and CUlaunchConfig of cuda.h.
struct LaunchAttribute {
  int id = 6;  // programmatic stream serialization
  int padding = 0;
  int value = 1;
  std::array<char, 60> rest = {};
};
struct LaunchConfig {
  std::array<unsigned, 3> blocks;
  std::array<unsigned, 3> threads;
  unsigned shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

}  // namespace

Driver::Driver() : library_({"libcuda.so.1"}) {
  library_.find(get_error_, "cuGetErrorString");
  library_.find(get_context_, "cuCtxGetCurrent");
  library_.find(set_context_, "cuCtxSetCurrent");
  library_.find(get_device_, "cuCtxGetDevice");
  library_.find(get_attribute_, "cuDeviceGetAttribute");
  library_.find(get_name_, "cuDeviceGetName");
  library_.find(load_, "cuModuleLoadData");
  library_.find(get_function_, "cuModuleGetFunction");
  library_.find(set_attribute_, "cuFuncSetAttribute");
  library_.find(launch_, "cuLaunchKernel");
  library_.find(launch_extended_, "cuLaunchKernelEx");
  check(get_context_(&context_), "asking for the context");
}

void Driver::enter_context() const {
  thread_local bool entered = false;
  if (entered) return;
  void* current = nullptr;
  check(get_context_(&current), "asking for the context");
  if (current == nullptr) check(set_context_(context_), "entering the context");
  entered = true;
}

void Driver::check(Result result, const char* what) const {
  if (result == 0) return;
  const char* text = nullptr;
  get_error_(result, &text);
  throw InternalError(
      fmt::format("{}: the CUDA driver says: {} ({})", what, text == nullptr ? "unknown" : text, result));
}

int Driver::generation() const {
  int device = 0, major = 0;
  check(get_device_(&device), "asking for the device");
  check(get_attribute_(&major, kComputeCapabilityMajor, device), "asking for the compute capability");
  return major;
}

std::string Driver::architecture() const {
  int device = 0, minor = 0;
  const int major = generation();
  check(get_device_(&device), "asking for the device");
  check(get_attribute_(&minor, kComputeCapabilityMinor, device), "asking for the compute capability");
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

std::int64_t Driver::most_shared_bytes() const {
  enter_context();
  int device = 0, bytes = 0;
  check(get_device_(&device), "asking for the device");
  check(get_attribute_(&bytes, kMaxSharedBytesOfBlock, device), "asking for the size of shared memory");
  return bytes;
}

int Driver::multiprocessors() const {
  enter_context();
  int device = 0, count = 0;
  check(get_device_(&device), "asking for the device");
  check(get_attribute_(&count, kMultiprocessors, device), "asking for the device's size");
  return count;
}

std::string Driver::card() const {
  enter_context();
  int device = 0;
  std::array<char, 256> name = {};
  check(get_device_(&device), "asking for the device");
  check(get_name_(name.data(), static_cast<int>(name.size()) - 1, device), "asking for the device's name");
  return fmt::format("{} with {} multiprocessors", name.data(), multiprocessors());
}

Module Driver::load(const std::string& cubin) const {
  enter_context();
  Module module = nullptr;
  check(load_(&module, cubin.data()), "loading kernels");
  return module;
}

Function Driver::function(Module module, const char* name) const {
  Function found = nullptr;
  check(get_function_(&found, module, name), name);
  return found;
}

void Driver::allow_shared_bytes(Function function, std::uint32_t bytes) const {
  check(set_attribute_(function, kMaxDynamicSharedBytes, static_cast<int>(bytes)), "asking for shared memory");
}

void Driver::launch(Function function, const LaunchShape& shape, void** arguments) const {
  enter_context();
  if (shape.early && generation() >= kEarlyStarts) {
    LaunchAttribute attribute;
    const LaunchConfig config{.blocks = {shape.blocks, shape.blocks_y, shape.blocks_z},
                              .threads = {shape.threads, 1, 1},
                              .shared_bytes = shape.shared_bytes,
                              .stream = shape.stream,
                              .attributes = &attribute,
                              .num_attributes = 1};
    return check(launch_extended_(&config, function, arguments, nullptr), "starting a kernel");
  }
  check(launch_(function, shape.blocks, shape.blocks_y, shape.blocks_z, shape.threads, 1, 1, shape.shared_bytes,
                shape.stream, arguments, nullptr),
        "starting a kernel");
}

}  // namespace orthant::cuda
