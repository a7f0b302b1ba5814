#include "orthant/parallel/data/transient_buffer.h"

#include <ATen/ATen.h>

namespace orthant {

at::Tensor BufferPool::take(std::int64_t elements, at::ScalarType type) {
  auto& blocks = free_[{elements, type}];
  if (!blocks.empty()) {
    auto block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }
  auto block = make_(elements, type);
  bytes_ += static_cast<std::int64_t>(block.nbytes());
  return block;
}

void BufferPool::give_back(at::Tensor block) {
  const auto key = std::pair(block.numel(), block.scalar_type());
  free_[key].push_back(std::move(block));
}

TransientBuffer::TransientBuffer(BufferPool& pool, LiveBytes& live, std::int64_t elements, at::ScalarType type,
                                 at::Device device)
    : pool_(&pool), live_(&live) {
  const auto bytes = static_cast<std::size_t>(elements) * c10::elementSize(type);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, device), /*allocator=*/nullptr,
                       /*resizable=*/false);
  tensor_ = at::empty({0}, at::TensorOptions().dtype(type).device(device)).set_(std::move(storage), 0, {elements}, {1});
}

void TransientBuffer::attach() {
  if (has_memory()) return;
  block_ = pool_->take(tensor_.numel(), tensor_.scalar_type());
  live_->add(static_cast<std::int64_t>(block_.nbytes()));
  // The storage keeps the block alive: views of it may outlive this object, in a user's module.
  auto* held = new at::Tensor(block_);
  tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(
      block_.mutable_data_ptr(), held, [](void* block) { delete static_cast<at::Tensor*>(block); }, tensor_.device()));
}

void TransientBuffer::release() {
  if (!has_memory()) return;
  tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, tensor_.device()));
  live_->add(-static_cast<std::int64_t>(block_.nbytes()));
  pool_->give_back(std::exchange(block_, at::Tensor()));
}

}  // namespace orthant
