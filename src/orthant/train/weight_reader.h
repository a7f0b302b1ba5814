// Where weights are read from: the tensors of a Hugging Face folder under their names there, or those of one of our
// checkpoints under ours, whatever pieces it has them in. And the one way from there into a parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
};

// True for a folder with a manifest.
bool is_checkpoint(const std::filesystem::path& folder);

// DataError for a folder that is neither, and for damaged headers or manifests. Hashes are not computed.
std::unique_ptr<WeightReader> open_weights(const std::filesystem::path& folder);

// What weights are read and written as.
inline constexpr std::array<DType, 4> kWeightDTypes = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

// Of its elements. DataError unless they are of one of those.
DType stored_dtype(const TensorEntry& entry);

// Fills `target` with the tensor, or with its transpose, converted to the target's dtype and device. Without a copy in
// between where dtype and orientation agree on the CPU; through a small buffer otherwise.
void read_into(const WeightReader& reader, const TensorEntry& entry, bool transposed, const at::Tensor& target);

// Whether two tensors of one shape and dtype hold the same bytes.
bool equal_contents(const WeightReader& reader, const std::string& left, const std::string& right,
                    std::int64_t num_bytes);

}  // namespace orthant
