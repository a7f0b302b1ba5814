// Bytes that tensors of this process hold on the CPU: shows what a function keeps for its backward.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>

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
    auto* block = new Block{next_->allocate(count), static_cast<std::int64_t>(count)};
    const std::int64_t bytes = bytes_ += block->count;
    std::int64_t before = peak_;
    while (bytes > before && !peak_.compare_exchange_weak(before, bytes)) {
    }
    return {block->data.get(), block, &release, block->data.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override { next_->copy_data(to, from, count); }

 private:
  struct Block {
    c10::DataPtr data;
    std::int64_t count;
  };

  explicit LiveBytes(c10::Allocator* next) : next_(next) {}

  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    instance().bytes_ -= block->count;
    delete block;
  }

  c10::Allocator* next_;
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<std::int64_t> peak_ = 0;
};

}  // namespace orthant::nn
