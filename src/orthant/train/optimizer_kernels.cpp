#include "orthant/train/optimizer_kernels.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/train/optimizer.h"

namespace orthant {
namespace cuda::sources {
extern const std::string_view optimizer;
}

namespace {

// As in optimizer.cu.
constexpr std::int64_t kUpdateChunk = 8192;
constexpr std::uint32_t kUpdateThreads = 256;
constexpr std::int64_t kSegmentWords = 8;
constexpr std::int64_t kStepNumbers = 5;

const cuda::Source kOptimizerSource{"train/optimizer.cu", cuda::sources::optimizer, {"ELEMENT", "MASTER", "COPY"}};

std::int64_t address_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::bit_cast<std::int64_t>(tensor.const_data_ptr()) : 0;
}

bool has_type(const at::Tensor& tensor, std::initializer_list<at::ScalarType> types) {
  return !tensor.defined() || std::ranges::find(types, tensor.scalar_type()) != types.end();
}

// Pageable memory is copied before this returns: once, when the optimizer is made.
template <typename Number>
at::Tensor uploaded(const std::vector<Number>& numbers, at::ScalarType type, at::Device device) {
  return at::tensor(numbers, at::TensorOptions().dtype(type)).to(device);
}

std::uint32_t blocks_of(std::int64_t chunks) {
  return static_cast<std::uint32_t>(chunks);
}

}  // namespace

bool OptimizerKernels::serves(const UpdatedSegment& segment) {
  const auto& parameters = segment.parameters;
  const auto here = [&](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.device() == parameters.device();
  };
  const bool states = std::ranges::all_of(
      segment.states, [&](const at::Tensor& state) { return here(state) && state.scalar_type() == at::kFloat; });
  return nn::device::serves(segment.gradient) && parameters.scalar_type() == at::kFloat && states &&
         here(segment.gradient) && here(segment.copy) && has_type(segment.copy, {at::kBFloat16, at::kHalf});
}

OptimizerKernels::OptimizerKernels(const OptimizerOptions& options, const std::vector<UpdatedSegment>& updated,
                                   std::vector<CountedSegment> counted, std::int64_t num_units, at::Tensor updates)
    : options_(options), device_(updates.device()), updates_(std::move(updates)) {
  const auto& first = updated.front();
  element_ = nn::device::element(first.gradient);
  master_ = first.parameters.is_split() ? 1 : 0;
  if (first.copy.defined()) copy_ = first.copy.scalar_type() == at::kBFloat16 ? 1 : 2;
  for (const auto& segment : updated) {
    const bool alike = nn::device::element(segment.gradient) == element_ &&
                       segment.parameters.is_split() == first.parameters.is_split() &&
                       segment.copy.defined() == first.copy.defined();
    if (!alike) throw InternalError("segments of one optimizer differ in their dtypes");
  }
  cuda::KernelLibrary::of_process().prepare({{&kOptimizerSource, {element_, master_, copy_}}});
  updated_ = table_of(updated);
  std::ranges::stable_sort(counted, {}, &CountedSegment::unit);
  std::vector<UpdatedSegment> gradients;
  std::vector<std::int64_t> first_chunks(static_cast<std::size_t>(num_units) + 1);
  for (const auto& segment : counted) {
    gradients.push_back({.parameters = {}, .gradient = segment.gradient, .states = {}, .copy = {}});
    first_chunks[static_cast<std::size_t>(segment.unit) + 1] +=
        (segment.gradient.numel() + kUpdateChunk - 1) / kUpdateChunk;
  }
  for (std::size_t u = 1; u < first_chunks.size(); ++u) first_chunks[u] += first_chunks[u - 1];
  counted_ = table_of(gradients);
  first_chunks_ = uploaded(first_chunks, at::kInt, device_);
  const auto doubles = at::TensorOptions().dtype(at::kDouble).device(device_);
  partials_ = at::zeros({counted_.chunks.size(0)}, doubles);
  lr_ = at::zeros({1}, doubles);
  verdict_ = at::zeros({1}, doubles);
  numbers_ = at::zeros({kStepNumbers}, doubles.dtype(at::kFloat));
}

OptimizerKernels::Table OptimizerKernels::table_of(const std::vector<UpdatedSegment>& segments) const {
  std::vector<std::int64_t> words;
  std::vector<std::int64_t> chunks;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto& segment = segments[i];
    const auto state = [&](std::size_t s) { return s < segment.states.size() ? address_of(segment.states[s]) : 0; };
    std::int64_t parameters = 0, rest = address_of(segment.copy);
    if (segment.parameters.is_split()) {
      parameters = address_of(segment.parameters.upper());
      rest = address_of(segment.parameters.remainder());
    } else if (segment.parameters.exponents().defined()) {
      parameters = address_of(segment.parameters.whole());
    }
    const std::int64_t addresses[] = {address_of(segment.gradient), state(0), state(1), parameters, rest};
    const bool aligned = std::ranges::all_of(addresses, [](std::int64_t place) { return place % 16 == 0; });
    const auto decay = std::bit_cast<std::uint32_t>(static_cast<float>(segment.weight_decay));
    words.insert(words.end(), std::begin(addresses), std::end(addresses));
    words.push_back(segment.gradient.numel());
    words.push_back(std::int64_t{decay} | (std::int64_t{aligned} << 32));
    words.resize((i + 1) * kSegmentWords);
    for (std::int64_t c = 0; c * kUpdateChunk < segment.gradient.numel(); ++c) {
      chunks.push_back(static_cast<std::int64_t>(i));
      chunks.push_back(c);
    }
  }
  return {uploaded(words, at::kLong, device_).view({static_cast<std::int64_t>(segments.size()), kSegmentWords}),
          uploaded(chunks, at::kInt, device_).view({static_cast<std::int64_t>(chunks.size() / 2), 2})};
}

void OptimizerKernels::update(const at::Tensor& norm, const at::Tensor& finite, const at::Tensor& loss_scale) {
  using nn::device::data;
  const auto stream = nn::device::stream(numbers_);
  const auto kernel = [&](const char* function) -> const cuda::Kernel& {
    return cuda::kernel(kOptimizerSource, function, {element_, master_, copy_});
  };
  const cuda::LaunchShape one{.stream = stream};
  kernel("step_numbers")(one, data<double>(lr_), data<double>(norm), data(finite), data<double>(loss_scale),
                         options_.clip, options_.beta1, options_.beta2, data<float>(updates_), data<float>(numbers_));
  const cuda::LaunchShape all{
      .blocks = blocks_of(updated_.chunks.size(0)), .threads = kUpdateThreads, .stream = stream};
  if (options_.kind == "adamw") {
    kernel("adamw")(all, data(updated_.segments), data(updated_.chunks), data<float>(numbers_),
                    static_cast<float>(1 - options_.beta1), static_cast<float>(options_.beta2),
                    static_cast<float>(1 - options_.beta2), static_cast<float>(options_.eps), data<double>(verdict_));
  } else {
    kernel("sgd")(all, data(updated_.segments), data(updated_.chunks), data<float>(numbers_),
                  static_cast<float>(options_.momentum), data<double>(verdict_));
  }
}

at::Tensor OptimizerKernels::squared_norms() const {
  using nn::device::data;
  const auto units = first_chunks_.numel() - 1;
  auto norms = at::empty({units}, partials_.options());
  const auto stream = nn::device::stream(norms);
  const auto kernel = [&](const char* function) -> const cuda::Kernel& {
    return cuda::kernel(kOptimizerSource, function, {element_, master_, copy_});
  };
  if (partials_.numel() > 0) {
    kernel("squared_chunks")({.blocks = blocks_of(partials_.numel()), .threads = kUpdateThreads, .stream = stream},
                             data(counted_.segments), data(counted_.chunks), data<double>(partials_));
  }
  kernel("squared_norms")({.blocks = blocks_of(units), .threads = kUpdateThreads, .stream = stream},
                          data<double>(partials_), data<std::int32_t>(first_chunks_), data<double>(norms));
  return norms;
}

}  // namespace orthant
