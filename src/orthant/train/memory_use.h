// How much memory the tensors of this process take: on the CPU by the counting allocator, on a device by torch's own.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace orthant {

// Of the CPU tensors made since the counting allocator was installed, which these install when nobody has.
std::int64_t live_memory_bytes(at::Device device = at::kCPU);
std::int64_t peak_memory_bytes(at::Device device);

// What torch's allocator holds of the device, free parts included; 0 on the CPU.
std::int64_t reserved_memory_bytes(at::Device device);

// That a device has in all; 0 on the CPU.
std::int64_t device_memory_bytes(at::Device device);

}  // namespace orthant
