// Bytes that tensors of this process hold on the CPU: shows what a function keeps for its backward.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace orthant::nn {

class LiveBytes : public c10::Allocator {
 public:
  // The process's only one, in place of ATen's from the first call on.
  static LiveBytes& instance() {
    static LiveBytes* counter = [] {
      auto* made = new LiveBytes(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made, /*priority=*/100);
      return made;
    }();
    return *counter;
  }

  std::int64_t now() const { return bytes_; }
  std::int64_t peak() const { return peak_; }  // since reset_peak()
  void reset_peak() { peak_ = bytes_.load(); }

  c10::DataPtr allocate(std::size_t count) override {
    c10::DataPtr data = next_->allocate(count);
    void* const place = data.get();
    if (place == nullptr) return data;
    const at::Device device = data.device();
    const std::int64_t bytes = bytes_ += static_cast<std::int64_t>(count);
    std::int64_t before = peak_;
    while (bytes > before && !peak_.compare_exchange_weak(before, bytes)) {
    }
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(place, Block{std::move(data), static_cast<std::int64_t>(count)});
    return {place, place, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { next_->copy_data(to, from, count); }

 private:
  struct Block {
    c10::DataPtr data;
    std::int64_t count;
  };

  explicit LiveBytes(c10::Allocator* next) : next_(next) {}

  static void release(void* place) {
    LiveBytes& all = instance();
    const std::lock_guard lock(all.mutex_);
    const auto node = all.blocks_.extract(place);
    all.bytes_ -= node.mapped().count;
  }

  c10::Allocator* next_;
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;  // by their memory, as libtorch's users of raw memory ask for it
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<std::int64_t> peak_ = 0;
};

}  // namespace orthant::nn
