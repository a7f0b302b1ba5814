// Functions of CUDA's runtime are called by libtorch alone: the program does not link it.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "orthant/runtime/device_recording.h"

namespace orthant {
namespace {

class CudaRecording : public DeviceRecording {
 public:
  void play() override { graph_.replay(); }
  at::cuda::CUDAGraph& graph() { return graph_; }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaRecorder : public DeviceRecorder {
 public:
  explicit CudaRecorder(at::Device device)
      : device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
        pool_(at::cuda::graph_pool_handle()) {}

  std::unique_ptr<DeviceRecording> record(const std::function<void()>& work) override {
    const c10::DeviceGuard on_device(device_);
    // What unrecorded steps left in the allocator's hands would lie idle beside the recordings' own memory.
    c10::cuda::CUDACachingAllocator::emptyCache();
    auto recording = std::make_unique<CudaRecording>();
    const c10::StreamGuard on_stream(stream_.unwrap());
    // Other threads go on with the device: loaders, a checkpoint that is written.
    recording->graph().capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      abandon(recording->graph());
      throw;
    }
    recording->graph().capture_end();
    return recording;
  }

 private:
  // The error that broke the recording off is told, not that it was broken off.
  static void abandon(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const std::exception&) {  // says no more than that
    }
  }

  at::Device device_;
  c10::cuda::CUDAStream stream_;
  at::cuda::MempoolId_t pool_;
};

}  // namespace

std::unique_ptr<DeviceRecorder> make_device_recorder(at::Device device) {
  return std::make_unique<CudaRecorder>(device);
}

}  // namespace orthant
