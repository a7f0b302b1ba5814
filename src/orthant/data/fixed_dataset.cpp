#include "orthant/data/fixed_dataset.h"

#include <ATen/ATen.h>

#include <cstring>

namespace orthant {

FixedDataset::FixedDataset(Fields fields, const FieldLimits& limits, std::vector<double> class_weights,
                           const std::string& source)
    : Dataset(std::move(class_weights)), fields_(std::move(fields)) {
  check_fields(fields_, limits, source);
  if (limits.num_labels > 0) check_class_weights(this->class_weights(), limits.num_labels);
  size_ = fields_.begin()->second.size(0);
  for (auto& field : fields_) field.second = field.second.detach().contiguous();
}

Fields FixedDataset::rows(std::span<const std::int64_t> indices) const {
  check_indices(indices, size_);
  Fields taken;
  for (const auto& [name, value] : fields_) {
    std::vector<std::int64_t> shape = value.sizes().vec();
    shape[0] = static_cast<std::int64_t>(indices.size());
    const at::Tensor out = at::empty(shape, value.options());
    const std::size_t row_bytes = value.nbytes() / static_cast<std::size_t>(size_);
    const auto* from = static_cast<const std::byte*>(value.const_data_ptr());
    auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
    for (std::size_t i = 0; i < indices.size() && row_bytes > 0; ++i) {
      std::memcpy(to + i * row_bytes, from + static_cast<std::size_t>(indices[i]) * row_bytes, row_bytes);
    }
    taken.emplace(name, out);
  }
  return taken;
}

}  // namespace orthant
