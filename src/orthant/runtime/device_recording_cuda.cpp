// Functions of CUDA's runtime are called by libtorch alone: the program does not link it.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "orthant/runtime/device_recording.h"

namespace orthant {
namespace {

// Memory that recordings share; a new one once none of them is left, since libtorch takes no pool that it has let go.
using Pool = std::shared_ptr<at::cuda::MempoolId_t>;

class Graph : public at::cuda::CUDAGraph {
 public:
  bool ended() const { return capture_ended_; }
};

void quietly(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception&) {  // the error that broke the recording off is told
  }
}

class CudaRecording : public DeviceRecording {
 public:
  explicit CudaRecording(Pool pool) : pool_(std::move(pool)) {}

  void play() override { graph_.replay(); }

  // On the current stream. What `work` or libtorch throws is thrown on, and nothing is left of the recording.
  void record(at::Device device, const std::function<void()>& work) {
    try {
      // Other threads go on with the device: loaders, a checkpoint that is written.
      graph_.capture_begin(*pool_, cudaStreamCaptureModeThreadLocal);
      begun_ = true;
      work();
      graph_.capture_end();
    } catch (...) {
      abandon(device);
      throw;
    }
  }

 private:
  // libtorch ends a recording before it tells its allocators, so that a broken one would leave them recording: no
  // memory would be given back to the device again, and this pool never.
  void abandon(at::Device device) {
    if (begun_) quietly([&] { graph_.capture_end(); });
    if (graph_.ended()) return;  // what it holds ends with it
    bool took_pool = begun_;
    quietly([&] {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device.index(), *pool_);
      took_pool = true;
    });
    if (!took_pool) return;
    auto& host = *at::getHostAllocator(at::kCUDA);
    quietly([&] { c10::cuda::CUDACachingAllocator::releasePool(device.index(), *pool_); });
    quietly([&] { host.end_allocate_to_pool(*pool_); });
    quietly([&] { host.release_pool(*pool_); });
  }

  Pool pool_;
  Graph graph_;
  bool begun_ = false;
};

class CudaRecorder : public DeviceRecorder {
 public:
  explicit CudaRecorder(at::Device device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  std::unique_ptr<DeviceRecording> record(const std::function<void()>& work) override {
    const c10::DeviceGuard on_device(device_);
    // What unrecorded steps left in the allocator's hands would lie idle beside the recordings' own memory.
    c10::cuda::CUDACachingAllocator::emptyCache();
    auto pool = pool_.lock();
    if (!pool) pool_ = pool = std::make_shared<at::cuda::MempoolId_t>(at::cuda::graph_pool_handle());
    auto recording = std::make_unique<CudaRecording>(std::move(pool));
    const c10::StreamGuard on_stream(stream_.unwrap());
    recording->record(device_, work);
    return recording;
  }

 private:
  at::Device device_;
  c10::cuda::CUDAStream stream_;
  std::weak_ptr<at::cuda::MempoolId_t> pool_;
};

}  // namespace

std::unique_ptr<DeviceRecorder> make_device_recorder(at::Device device) {
  return std::make_unique<CudaRecorder>(device);
}

}  // namespace orthant
