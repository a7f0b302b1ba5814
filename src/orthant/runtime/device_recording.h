// Work of a CUDA device that is recorded once and played back with one start (a CUDA graph): kernels, copies and fills
// with the arguments that they had. What differs from one time to the next lies in tensors that stay where they are.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace orthant {

class DeviceRecording {
 public:
  virtual ~DeviceRecording() = default;
  // On the current stream. The host does not wait.
  virtual void play() = 0;
};

class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;
  // Notes what `work` starts on the device; nothing of it runs. Everything in it has run before: nothing is compiled,
  // and the host neither waits nor copies pageable memory. Tensors that it makes lie in memory that all recordings of
  // this recorder share: no two play at once, and what must outlive the next play is copied elsewhere.
  virtual std::unique_ptr<DeviceRecording> record(const std::function<void()>& work) = 0;
};

// Of a CUDA device; null where this build cannot record.
std::unique_ptr<DeviceRecorder> make_device_recorder(at::Device device);

}  // namespace orthant
