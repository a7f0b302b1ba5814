// Work of a CUDA device that is recorded once and played back with one start (a CUDA graph): kernels, copies and fills
// with the arguments that they had. What differs from one time to the next lies in tensors that stay where they are.
// What no graph can hold stands between pieces, each a graph of its own.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace orthant {

class DeviceRecording {
 public:
  virtual ~DeviceRecording() = default;
  // On the current stream. The host does not wait, but for what stands between pieces.
  virtual void play() = 0;
};

class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;
  // Notes what `work` starts on the device; nothing of it runs. Everything in it has run before: nothing is compiled,
  // and the host neither waits nor copies pageable memory. Tensors that it makes lie in memory that all recordings of
  // this recorder share: no two play at once, and what must outlive the next play is copied elsewhere.
  virtual std::unique_ptr<DeviceRecording> record(const std::function<void()>& work) = 0;

  // Called by such work: what it started so far is a piece, and each play calls `between` behind it, on the host,
  // before it plays the next one. Not called now. No event or stream of a piece is waited for in another.
  virtual void cut(std::function<void()> between) = 0;
};

// Of a CUDA device; null where this build cannot record.
std::unique_ptr<DeviceRecorder> make_device_recorder(at::Device device);

}  // namespace orthant
