// What a device needs before the first step: settings that it has, kernels compiled or found on disk, and how libtorch
// multiplies on it. Local.
#pragma once

#include <functional>
#include <string>

#include "orthant/graph/spec.h"
#include "orthant/nn/device_variants.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

// ConfigError for settings that the options' device does not have.
void check_device(const TrainerOptions& options);

// ConfigError when the card has no products in float8 with a scale for each row, as an "sm_80" has none; or when
// kernels cannot be compiled for it.
inline constexpr int kFloat8Generation = 90;
void check_float8_card(bool has_kernels, const std::string& architecture);

// Whether float32 products and convolutions of libtorch may run in TF32 on a CUDA device, from now on in this process.
void permit_tf32(bool permitted);

// Checks the device, and permits TF32 or forbids it as the options say. Kernels for the graph's values in the compute
// dtype; nothing on the CPU. Ranks of a host that start together share the work through the cache on disk.
void prepare_device(const TrainerOptions& options, const GraphSpec& graph);

// The same for whoever runs forward passes alone. `more`: kernels besides those of the graph's values.
void prepare_kernels(at::Device device, const std::function<void(const std::string&)>& say, at::ScalarType dtype,
                     const GraphSpec& graph, const nn::device::Variants& more);

// A host tensor on the device, through pinned memory: neither side waits for the other. x itself on the CPU.
at::Tensor to_device(const at::Tensor& x, at::Device device);

// Whether runs with these options repeat to the bit.
bool repeats_to_the_bit(const TrainerOptions& options);

}  // namespace orthant
