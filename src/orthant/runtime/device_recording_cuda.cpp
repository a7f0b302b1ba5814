// Functions of CUDA's runtime are called by libtorch alone: the program does not link it.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "orthant/base/error.h"
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

// Between two cuts there may be nothing for the device, of which libtorch warns. Other warnings are passed on.
class IgnoreEmptyGraph : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Graph is empty") == std::string::npos) others_->process(warning);
  }

 private:
  c10::WarningHandler* others_ = c10::WarningUtils::get_warning_handler();
};

// Brings graphs to the device, so that no first play waits for it: a receive that was started before may be waiting for
// a peer that does the same. libtorch has no function for it; where its runtime is not found, first plays do it.
void bring_to_device(const std::vector<cudaGraphExec_t>& graphs, const c10::cuda::CUDAStream& stream) {
  using Upload = cudaError_t (*)(cudaGraphExec_t, cudaStream_t);
  static const auto upload = reinterpret_cast<Upload>(dlsym(RTLD_DEFAULT, "cudaGraphUpload"));
  if (upload == nullptr) return;
  for (const auto graph : graphs) {
    const auto result = upload(graph, stream.stream());
    if (result == cudaSuccess) continue;
    throw std::runtime_error(fmt::format("its {} graphs cannot be brought to the device: error {} of CUDA's runtime",
                                         graphs.size(), static_cast<int>(result)));
  }
  stream.synchronize();
}

class CudaRecording : public DeviceRecording {
 public:
  CudaRecording(Pool pool, at::Device device) : pool_(std::move(pool)), device_(device) {}

  void play() override {
    for (const auto& piece : pieces_) {
      piece->graph.replay();
      if (piece->between) piece->between();
    }
  }

  // On the current stream. What `work` or libtorch throws is thrown on, and nothing is left of the recording.
  void record(const std::function<void()>& work) {
    try {
      begin_piece();
      work();
      if (pieces_.size() == 1) {
        end_piece();
      } else {
        end_piece_at_cut();
      }
    } catch (...) {
      abandon();
      throw;
    }
    if (pieces_.size() == 1) return;
    std::vector<cudaGraphExec_t> graphs;
    for (const auto& piece : pieces_) graphs.push_back(piece->graph.raw_cuda_graph_exec());
    bring_to_device(graphs, c10::cuda::getCurrentCUDAStream(device_.index()));
  }

  void cut(std::function<void()> between) {
    end_piece_at_cut();
    pieces_.back()->between = std::move(between);
    begin_piece();
  }

 private:
  struct Piece {
    Graph graph;
    std::function<void()> between = {};
  };

  void begin_piece() {
    begun_ = false;
    pieces_.push_back(std::make_unique<Piece>());
    // Other threads go on with the device: loaders, a checkpoint that is written.
    pieces_.back()->graph.capture_begin(*pool_, cudaStreamCaptureModeThreadLocal);
    begun_ = true;
  }

  void end_piece() { pieces_.back()->graph.capture_end(); }

  // One of several.
  void end_piece_at_cut() {
    IgnoreEmptyGraph handler;
    const c10::WarningUtils::WarningHandlerGuard guard(&handler);
    end_piece();
  }

  // libtorch ends a recording before it tells its allocators, so that a broken one would leave them recording: no
  // memory would be given back to the device again, and this pool never.
  void abandon() {
    if (pieces_.empty()) return;
    Graph& graph = pieces_.back()->graph;
    if (begun_) quietly([&] { graph.capture_end(); });
    if (graph.ended()) return;  // what it holds ends with it
    bool took_pool = begun_;
    quietly([&] {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), *pool_);
      took_pool = true;
    });
    if (!took_pool) return;
    auto& host = *at::getHostAllocator(at::kCUDA);
    quietly([&] { c10::cuda::CUDACachingAllocator::releasePool(device_.index(), *pool_); });
    quietly([&] { host.end_allocate_to_pool(*pool_); });
    quietly([&] { host.release_pool(*pool_); });
  }

  Pool pool_;
  at::Device device_;
  std::vector<std::unique_ptr<Piece>> pieces_;
  bool begun_ = false;  // the last piece
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
    auto recording = std::make_unique<CudaRecording>(std::move(pool), device_);
    const c10::StreamGuard on_stream(stream_.unwrap());
    under_way_ = recording.get();
    try {
      recording->record(work);
    } catch (...) {
      under_way_ = nullptr;
      throw;
    }
    under_way_ = nullptr;
    return recording;
  }

  void cut(std::function<void()> between) override {
    if (under_way_ == nullptr) throw InternalError("a cut where nothing is recorded");
    under_way_->cut(std::move(between));
  }

 private:
  at::Device device_;
  c10::cuda::CUDAStream stream_;
  std::weak_ptr<at::cuda::MempoolId_t> pool_;
  CudaRecording* under_way_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceRecorder> make_device_recorder(at::Device device) {
  return std::make_unique<CudaRecorder>(device);
}

}  // namespace orthant
