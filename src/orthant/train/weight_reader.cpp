#include "orthant/train/weight_reader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "orthant/base/error.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/checkpoint_reader.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;

class FolderReader : public WeightReader {
 public:
  explicit FolderReader(const fs::path& path) : folder_(TensorFolder::open(path)) {
    for (const auto& tensor : folder_.tensors()) entries_.push_back(tensor.entry);
  }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  void read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const override {
    folder_.read(tensor, offset, out);
  }

 private:
  TensorFolder folder_;
  std::vector<TensorEntry> entries_;
};

std::span<std::byte> memory_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kManifestFile, ignored);
}

std::unique_ptr<WeightReader> open_weights(const fs::path& folder) {
  if (is_checkpoint(folder)) return std::make_unique<CheckpointReader>(folder, verify_checkpoint(folder.string()));
  return std::make_unique<FolderReader>(folder);
}

DType stored_dtype(const TensorEntry& entry) {
  for (const auto dtype : kWeightDTypes) {
    if (entry.dtype == element_name(dtype)) return dtype;
  }
  throw DataError(fmt::format("tensor {} is of dtype {}", entry.name, entry.dtype),
                  {.remedy = "weights are read as F64, F32, BF16 or F16"});
}

void read_into(const WeightReader& reader, const TensorEntry& entry, bool transposed, const at::Tensor& target) {
  at::NoGradGuard no_gradients;
  const auto type = scalar_type(stored_dtype(entry));
  if (target.is_cpu() && target.is_contiguous() && target.scalar_type() == type && !transposed) {
    reader.read(entry.name, 0, memory_of(target));
    return;
  }
  // Rows of the stored tensor, a chunk at a time; a vector is one row per element.
  const auto rows = entry.shape.empty() ? 1 : entry.shape[0];
  const auto row_bytes = tensor_bytes(entry) / std::max<std::int64_t>(rows, 1);
  const auto most =
      std::clamp<std::int64_t>(kChunkBytes / std::max<std::int64_t>(row_bytes, 1), 1, std::max<std::int64_t>(rows, 1));
  auto shape = entry.shape;
  if (shape.empty()) shape = {1};
  const auto matching = entry.shape.empty() ? target.view({1}) : target;
  shape[0] = most;
  const auto buffer = at::empty(shape, at::TensorOptions().dtype(type));
  for (std::int64_t first = 0; first < rows; first += most) {
    const auto count = std::min(most, rows - first);
    const auto part = buffer.narrow(0, 0, count);
    reader.read(entry.name, first * row_bytes, memory_of(part).first(static_cast<std::size_t>(count * row_bytes)));
    matching.narrow(transposed ? 1 : 0, first, count).copy_(transposed ? part.t() : part);
  }
}

bool equal_contents(const WeightReader& reader, const std::string& left, const std::string& right,
                    std::int64_t num_bytes) {
  std::vector<std::byte> ours(static_cast<std::size_t>(std::min(num_bytes, kChunkBytes)));
  std::vector<std::byte> theirs(ours.size());
  for (std::int64_t done = 0; done < num_bytes; done += kChunkBytes) {
    const auto count = static_cast<std::size_t>(std::min(kChunkBytes, num_bytes - done));
    reader.read(left, done, std::span(ours).first(count));
    reader.read(right, done, std::span(theirs).first(count));
    if (std::memcmp(ours.data(), theirs.data(), count) != 0) return false;
  }
  return true;
}

}  // namespace orthant
