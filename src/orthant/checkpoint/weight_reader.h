// Where weights are read from: the tensors of a Hugging Face folder under their names there, or those of one of our
// checkpoints under ours, whatever pieces it has them in. And the one way from there into a parameter, or into the part
// of it that a rank holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "orthant/base/random.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/safetensors.h"
#include "orthant/graph/dtype.h"

namespace orthant {

// Nothing is mapped: reads go straight to the caller's memory.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  virtual const std::vector<TensorEntry>& entries() const = 0;
  // Bytes of the row-major tensor from `offset` on.
  virtual void read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const = 0;
  // A box of one of the entries, row-major: each contiguous run of it, and no byte besides.
  virtual void read_box(const TensorEntry& entry, const TensorBox& box, std::span<std::byte> out) const;
};

// Counts what is read through it.
class CountingReader : public WeightReader {
 public:
  explicit CountingReader(std::shared_ptr<const WeightReader> reader) : reader_(std::move(reader)) {}
  const std::vector<TensorEntry>& entries() const override { return reader_->entries(); }
  void read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const override;
  void read_box(const TensorEntry& entry, const TensorBox& box, std::span<std::byte> out) const override;
  std::int64_t bytes_read() const { return bytes_; }  // of tensors, by this process

 private:
  std::shared_ptr<const WeightReader> reader_;
  mutable std::atomic<std::int64_t> bytes_ = 0;
};

// True for a folder with a manifest.
bool is_checkpoint(const std::filesystem::path& folder);

// DataError for a folder that is neither, and for damaged headers or manifests. The files of a checkpoint are hashed,
// each by one of the ranks. Collective over `ranks`; Local for one rank.
std::unique_ptr<WeightReader> open_weights(const std::filesystem::path& folder, const ControlGroup& ranks = {},
                                           const std::shared_ptr<const TagKey>& key = {});

// What weights are read and written as.
inline constexpr std::array<DType, 4> kWeightDTypes = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

// Of its elements. DataError unless they are of one of those.
DType stored_dtype(const TensorEntry& entry);

// Fills `target` with the tensor, or with its transpose, converted to the target's dtype and device. Without a copy in
// between where dtype and orientation agree on the CPU; through a small buffer otherwise.
void read_into(const WeightReader& reader, const TensorEntry& entry, bool transposed, const at::Tensor& target);

// The same for a box of the tensor, or of its transpose; `target` has the box's lengths.
void read_into(const WeightReader& reader, const TensorEntry& entry, bool transposed, const TensorBox& box,
               const at::Tensor& target);

// Whether `held` has the bits that read_into() would give it.
bool equals_stored(const WeightReader& reader, const TensorEntry& entry, bool transposed, const TensorBox& box,
                   const at::Tensor& held);

// Whether two tensors of one shape and dtype hold the same bytes.
bool equal_contents(const WeightReader& reader, const std::string& left, const std::string& right,
                    std::int64_t num_bytes);

}  // namespace orthant
