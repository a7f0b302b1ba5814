// What a generation is set up with, alike on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "orthant/comm/communicator.h"
#include "orthant/graph/dtype.h"
#include "orthant/mesh/mesh.h"
#include "orthant/runtime/device_recording.h"

namespace orthant {

struct GenerationOptions {
  DType dtype = DType::float32;  // of parameters, arithmetic and the cache
  at::Device device = at::kCPU;
  Mesh mesh = {};  // see check_generation_mesh()
  // Of the mesh, with generation_groups(); null on one rank.
  std::shared_ptr<const comm::Communicator> communicator = nullptr;
  double timeout_seconds = 300;  // the communicator's: a rank that waits for orders hears something within it

  std::int64_t cache_tokens = 0;   // of all running sequences of a replica; 0: by most_running and what is free
  std::int64_t most_running = 64;  // sequences of a replica
  // New tokens of a step, which bounds the chunks of prompts; 0: as many as suit the device.
  std::int64_t step_tokens = 0;

  std::function<void(const std::string&)> say = {};  // for people, on rank 0; empty: nobody listens
  // For tests: who records steps instead of the device's own recorder.
  std::function<std::unique_ptr<DeviceRecorder>()> make_recorder = {};
};

}  // namespace orthant
