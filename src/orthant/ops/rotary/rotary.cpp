#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn {

RotaryTable rotary_table(std::int64_t sequence, const at::Tensor& inverse, double magnitude,
                         const at::TensorOptions& options) {
  at::NoGradGuard no_grad;
  const at::Tensor angles = at::outer(at::arange(sequence, inverse.options()), inverse);
  return {angles.cos().mul_(magnitude).to(options), angles.sin().mul_(magnitude).to(options)};
}

RotaryTable rotary_table(std::int64_t sequence, const std::vector<double>& inverse, double magnitude,
                         const at::TensorOptions& options) {
  return rotary_table(sequence, at::tensor(inverse, at::dtype(at::kDouble)), magnitude, options);
}

std::vector<std::vector<Range>> document_ranges(const at::Tensor& document_starts) {
  std::vector<std::vector<Range>> documents(static_cast<std::size_t>(document_starts.size(0)));
  const std::int64_t* start = document_starts.const_data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < documents.size(); ++row) {
    auto& ranges = documents[row];
    for (std::int64_t position = 0; position < document_starts.size(1); ++position, ++start) {
      if (*start == position) ranges.push_back({position, position});
      if (ranges.empty() || *start != ranges.back().begin) {
        throw InternalError(
            fmt::format("document_starts: token {} of row {} has {}, the token before it is in another document",
                        position, row, *start));
      }
      ranges.back().end = position + 1;
    }
  }
  return documents;
}

at::Tensor document_positions(const at::Tensor& document_starts) {
  return at::arange(document_starts.size(1), document_starts.options()).unsqueeze(0).sub(document_starts);
}

void rotate_heads(const at::Tensor& qkv, const AttentionOptions& options) {
  if (!options.rotary.cos.defined()) return;
  if (device::serves_rotation(qkv, options)) return device::rotate_heads(qkv, options);
  const std::int64_t half = options.head_size / 2;
  const std::int64_t sequence = qkv.size(1);
  const at::ScalarType dtype = kernels::compute_dtype(qkv);
  at::Tensor positions = options.positions;
  if (!positions.defined() && options.document_starts.defined())
    positions = document_positions(options.document_starts);
  // [sequence, 1, half], or of packed documents [rows, sequence, 1, half].
  const auto table = [&](const at::Tensor& values) {
    if (!positions.defined()) return values.narrow(0, 0, sequence).to(dtype).unsqueeze(1);
    return values.to(dtype).index({positions}).unsqueeze(2);
  };
  const at::Tensor cos = table(options.rotary.cos), sin = table(options.rotary.sin);
  const at::Tensor turned = qkv.view({qkv.size(0), sequence, options.heads + 2 * options.kv_heads, options.head_size})
                                .narrow(2, 0, options.heads + options.kv_heads);
  const at::Tensor first = turned.narrow(3, 0, half), second = turned.narrow(3, half, half);
  const at::Tensor x1 = first.to(dtype), x2 = second.to(dtype);
  const at::Tensor y1 = x1 * cos - x2 * sin, y2 = x2 * cos + x1 * sin;
  first.copy_(y1);
  second.copy_(y2);
}

}  // namespace orthant::nn
