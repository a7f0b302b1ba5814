#include "orthant/train/entry_watch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "orthant/nn/device_kernels.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/finite_watch.h"

namespace orthant {
namespace cuda::sources {
extern const std::string_view entry_watch;
}

namespace {

const cuda::Source kEntryWatchSource{"train/entry_watch.cu", cuda::sources::entry_watch, {}};
constexpr std::size_t kMostNotingBlocks = 1056;
constexpr std::uint32_t kNotingThreads = 1024;

// The parts of a buffer's entries that this rank owns, as ranges of what it owns.
void each_owned_entry(const FlatParameters& buffer, const std::function<void(const FlatEntry&, Range)>& act) {
  const auto owned = buffer.owned();
  for (const auto& entry : buffer.layout().entries) {
    const auto met = common(owned, entry.range());
    if (!met.empty()) act(entry, {met.begin - owned.begin, met.end - owned.begin});
  }
}

std::int64_t exponent_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return 0x7f800000;
  return dtype == at::kBFloat16 ? 0x7f80 : 0x7c00;
}

}  // namespace

EntryWatch::EntryWatch(const ParameterStore& store, at::Device device) : store_(store) {
  const auto add = [&](const at::Tensor& flat, std::size_t b) -> Tensor {
    const auto first_row = num_rows_;
    if (flat.defined()) each_owned_entry(*store.buffers()[b], [&](const FlatEntry&, Range) { ++num_rows_; });
    return {flat, b, first_row};
  };
  served_ = nn::device::has_kernels(device);
  for (std::size_t b = 0; b < store.buffers().size(); ++b) {
    const auto& buffer = *store.buffers()[b];
    parameters_.push_back(add(buffer.master().exponents(), b));
    gradients_.push_back(add(buffer.trainable() ? buffer.owned_gradient() : at::Tensor(), b));
    for (const auto* tensor : {&parameters_.back(), &gradients_.back()}) {
      served_ = served_ && (!tensor->flat.defined() || nn::device::serves(tensor->flat));
    }
  }
  if (served_ && num_rows_ > 0) make_table(device);
}

void EntryWatch::make_table(at::Device device) {
  std::vector<std::int64_t> words;
  for (std::size_t b = 0; b < store_.buffers().size(); ++b) {
    for (const auto* tensor : {&parameters_[b], &gradients_[b]}) {
      if (!tensor->flat.defined()) continue;
      each_owned_entry(*store_.buffers()[b], [&](const FlatEntry&, Range range) {
        const auto part = tensor->flat.narrow(0, range.begin, range.size());
        words.push_back(std::bit_cast<std::int64_t>(part.const_data_ptr()));
        words.push_back(part.numel());
        words.push_back(exponent_of(part.scalar_type()));
      });
    }
  }
  rows_ = at::tensor(words, at::TensorOptions().dtype(at::kLong)).to(device);
  for (auto& flags : flags_) {
    flags = at::zeros({static_cast<std::int64_t>(num_rows_)}, at::TensorOptions().dtype(at::kByte).device(device));
  }
  cuda::KernelLibrary::of_process().prepare({{&kEntryWatchSource, {}}});
}

void EntryWatch::begin_on_device() const {
  if (takes_notes() && num_rows_ > 0) flags_[1].copy_(flags_[0]);
}

void EntryWatch::note(const at::Tensor& numbers) const {
  if (!takes_notes() || num_rows_ == 0) return;
  using nn::device::data;
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(std::min(num_rows_, kMostNotingBlocks)),
                                .threads = kNotingThreads,
                                .stream = nn::device::stream(numbers)};
  cuda::kernel(kEntryWatchSource, "note_not_finite", {})(shape, data(flags_[0]), data(rows_),
                                                         static_cast<int>(num_rows_), data<double>(numbers));
}

std::vector<std::string> EntryWatch::parameters(std::size_t buffer, int steps_ago) const {
  return names(parameters_[buffer], steps_ago);
}

std::vector<std::string> EntryWatch::gradients(std::size_t buffer, int steps_ago) const {
  return names(gradients_[buffer], steps_ago);
}

std::vector<std::string> EntryWatch::names(const Tensor& tensor, int steps_ago) const {
  std::vector<std::string> found;
  if (!tensor.flat.defined()) return found;
  const auto& buffer = *store_.buffers()[tensor.buffer];
  if (takes_notes()) {
    const auto flags = flags_[static_cast<std::size_t>(steps_ago)].cpu();
    const auto* flag = flags.const_data_ptr<std::uint8_t>() + tensor.first_row;
    each_owned_entry(buffer, [&](const FlatEntry& entry, Range) {
      if (*flag++ != 0) found.push_back(entry.parameter);
    });
    return found;
  }
  const auto on_host = tensor.flat.detach().cpu();
  if (all_finite(on_host)) return found;
  each_owned_entry(buffer, [&](const FlatEntry& entry, Range range) {
    if (!all_finite(on_host.narrow(0, range.begin, range.size()))) found.push_back(entry.parameter);
  });
  return found;
}

}  // namespace orthant
