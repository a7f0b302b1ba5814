// A flat buffer whose memory comes and goes while tensors that view it stay: full parameters between their gather and
// their free, full gradients between a backward and their reduction. Memory comes from a pool, which hands out again
// what was given back, so that a step allocates nothing once the first has run.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace orthant {

// Makes a one-dimensional buffer, filled with zeros: on the device, or where peers can read it.
using MakeBuffer = std::function<at::Tensor(std::int64_t elements, at::ScalarType type)>;

// Blocks by length and type. One thread; outlives the buffers that use it.
class BufferPool {
 public:
  explicit BufferPool(MakeBuffer make) : make_(std::move(make)) {}

  at::Tensor take(std::int64_t elements, at::ScalarType type);
  void give_back(at::Tensor block);

  std::int64_t bytes() const { return bytes_; }  // made so far: it keeps what it has made

 private:
  MakeBuffer make_;
  std::map<std::pair<std::int64_t, at::ScalarType>, std::vector<at::Tensor>> free_;
  std::int64_t bytes_ = 0;
};

// Bytes of some transient buffers that have memory, and the most they had.
struct LiveBytes {
  std::int64_t now = 0;
  std::int64_t peak = 0;

  void add(std::int64_t bytes) { peak = std::max(peak, now += bytes); }
};

class TransientBuffer {
 public:
  TransientBuffer() = default;
  // Without memory. `live`, which counts it, outlives it, as does the pool.
  TransientBuffer(BufferPool& pool, LiveBytes& live, std::int64_t elements, at::ScalarType type, at::Device device);

  // Always the same tensor; its contents and those of its views exist only while it has memory. libtorch refuses most
  // uses of it otherwise.
  const at::Tensor& tensor() const { return tensor_; }
  bool has_memory() const { return block_.defined(); }

  // The memory itself, for calls that may outlive this object.
  const at::Tensor& block() const { return block_; }

  // Contents are undefined after attach(). Both do nothing when it is so already.
  void attach();
  void release();

 private:
  BufferPool* pool_ = nullptr;
  LiveBytes* live_ = nullptr;
  at::Tensor tensor_;
  at::Tensor block_;
};

}  // namespace orthant
