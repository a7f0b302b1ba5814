#include "orthant/checkpoint/weight_reader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/large_buffer.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/files/element_type.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/slice_runs.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/nn/scalar_type.h"

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
  void read_box(const TensorEntry& entry, const TensorBox& box, std::span<std::byte> out) const override {
    folder_.read_slice(entry.name, box.offsets, box.lengths, out);
  }

 private:
  TensorFolder folder_;
  std::vector<TensorEntry> entries_;
};

std::span<std::byte> memory_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

TensorBox whole_box(Shape shape) {
  const Shape zeros(shape.size(), 0);
  return {shape, zeros, shape};
}

// A box of the parameter as one of what is stored.
TensorBox stored_box(TensorBox box, bool transposed) {
  if (!transposed) return box;
  std::ranges::reverse(box.global_shape);
  std::ranges::reverse(box.offsets);
  std::ranges::reverse(box.lengths);
  return box;
}

// Reads the box in parts, rows of what is stored; `visit` gets each beside its place in `held`, both in the parameter's
// orientation.
void for_each_part(const WeightReader& reader, const TensorEntry& entry, bool transposed, const TensorBox& box,
                   const at::Tensor& held,
                   const std::function<void(const at::Tensor& held, const at::Tensor& stored)>& visit) {
  auto stored = stored_box(box, transposed);
  const auto type = scalar_type(stored_dtype(entry));
  const bool scalar = stored.lengths.empty();
  const auto rows = scalar ? 1 : stored.lengths[0];
  if (num_elements(stored.lengths) == 0) return;
  const auto row_elements = num_elements(stored.lengths) / rows;
  const auto row_bytes = row_elements * static_cast<std::int64_t>(c10::elementSize(type));
  const auto most = std::clamp<std::int64_t>(kChunkBytes / row_bytes, 1, rows);
  const auto buffer = make_large_buffer(most * row_elements, type);  // goes back to the system: heaps keep holes
  const auto first_row = scalar ? 0 : stored.offsets[0];
  for (std::int64_t first = 0; first < rows; first += most) {
    const auto count = std::min(most, rows - first);
    if (!scalar) {
      stored.offsets[0] = first_row + first;
      stored.lengths[0] = count;
    }
    const auto part = buffer.narrow(0, 0, count * row_elements).view(stored.lengths);
    reader.read_box(entry, stored, memory_of(part));
    visit(scalar ? held : held.narrow(transposed ? 1 : 0, first, count), transposed ? part.t() : part);
  }
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  return is_there(folder / kManifestFile);
}

void WeightReader::read_box(const TensorEntry& entry, const TensorBox& box, std::span<std::byte> out) const {
  for_each_run(box.global_shape, box.offsets, box.lengths, *element_bytes(entry.dtype),
               [&](std::int64_t begin, std::int64_t bytes) {
                 const auto count = static_cast<std::size_t>(bytes);
                 read(entry.name, begin, out.first(count));
                 out = out.subspan(count);
               });
}

void CountingReader::read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const {
  reader_->read(tensor, offset, out);
  bytes_ += static_cast<std::int64_t>(out.size());
}

void CountingReader::read_box(const TensorEntry& entry, const TensorBox& box, std::span<std::byte> out) const {
  reader_->read_box(entry, box, out);
  bytes_ += static_cast<std::int64_t>(out.size());
}

std::unique_ptr<WeightReader> open_weights(const fs::path& folder, const ControlGroup& ranks,
                                           const std::shared_ptr<const TagKey>& key) {
  if (is_checkpoint(folder)) {
    return std::make_unique<CheckpointReader>(open_checkpoint(folder.string(), ranks, {IoPatience(), key}));
  }
  std::unique_ptr<WeightReader> reader;
  ranks.together([&] { reader = std::make_unique<FolderReader>(folder); });
  return reader;
}

DType stored_dtype(const TensorEntry& entry) {
  for (const auto dtype : kWeightDTypes) {
    if (entry.dtype == element_name(dtype)) return dtype;
  }
  throw DataError(fmt::format("tensor {} is of dtype {}", entry.name, entry.dtype),
                  {.remedy = "weights are read as F64, F32, BF16 or F16"});
}

void read_into(const WeightReader& reader, const TensorEntry& entry, bool transposed, const at::Tensor& target) {
  read_into(reader, entry, transposed, stored_box(whole_box(entry.shape), transposed), target);
}

void read_into(const WeightReader& reader, const TensorEntry& entry, bool transposed, const TensorBox& box,
               const at::Tensor& target) {
  at::NoGradGuard no_gradients;
  const bool as_stored = target.scalar_type() == scalar_type(stored_dtype(entry)) && !transposed;
  if (target.is_cpu() && target.is_contiguous() && as_stored) {
    reader.read_box(entry, box, memory_of(target));
    return;
  }
  for_each_part(reader, entry, transposed, box, target,
                [](const at::Tensor& part, const at::Tensor& stored) { part.copy_(stored); });
}

bool equals_stored(const WeightReader& reader, const TensorEntry& entry, bool transposed, const TensorBox& box,
                   const at::Tensor& held) {
  at::NoGradGuard no_gradients;
  const auto bits = [](const at::Tensor& values) { return values.contiguous().view({-1}).view(at::kByte); };
  bool equal = true;
  for_each_part(reader, entry, transposed, box, held, [&](const at::Tensor& part, const at::Tensor& stored) {
    equal = equal && at::equal(bits(part), bits(stored.to(part.options())));
  });
  return equal;
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
