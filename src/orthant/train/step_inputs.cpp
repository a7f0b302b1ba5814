#include "orthant/train/step_inputs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace orthant {
namespace {

constexpr std::int64_t kAlignment = 64;  // of every tensor in the bytes

std::int64_t rounded_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// In one order, whatever the maps hold.
template <class Inputs, class Act>
void each_tensor(Inputs& inputs, const Act& act) {
  for (auto& microbatch : inputs.microbatches) {
    for (auto& [name, field] : microbatch.fields) act(field);
    for (auto& [name, rows] : microbatch.token_rows) {
      for (auto* tensor : {&rows.row, &rows.position, &rows.starts, &rows.picked, &rows.firsts}) act(*tensor);
    }
  }
  act(inputs.loss_factors);
  act(inputs.told);
}

}  // namespace

std::string shape_of(const StepInputs& inputs) {
  std::string text;
  const auto add = [&text](std::string_view name, const at::Tensor& tensor) {
    text += fmt::format("{} {} {};", name, c10::str(tensor.sizes()), c10::toString(tensor.scalar_type()));
  };
  for (const auto& microbatch : inputs.microbatches) {
    text += fmt::format("from {}:", microbatch.first_row);
    for (const auto& [name, field] : microbatch.fields) add(name, field);
    for (const auto& [name, rows] : microbatch.token_rows) {
      add(fmt::format("rows of {} of at most {}", name, rows.longest), rows.picked);
    }
  }
  add("told", inputs.told);
  return text;
}

std::int64_t most_tokens(const StepInputs& inputs) {
  std::int64_t most = 0;
  for (const auto& microbatch : inputs.microbatches) {
    for (const auto& [name, field] : microbatch.fields) {
      const bool is_ids = field.dim() == 2 && at::isIntegralType(field.scalar_type(), /*includeBool=*/true);
      most = std::max(most, is_ids ? field.numel() : field.dim() > 0 ? field.size(0) : 0);
    }
  }
  return most;
}

InputMemory::InputMemory(const StepInputs& inputs, at::Device device) : device_(device), held_(inputs) {
  if (device.is_cpu()) return;
  std::int64_t size = 0;
  each_tensor(inputs,
              [&](const at::Tensor& tensor) { size += rounded_up(static_cast<std::int64_t>(tensor.nbytes())); });
  bytes_ = at::empty({size}, at::TensorOptions().dtype(at::kByte).device(device));
  std::int64_t offset = 0;
  each_tensor(held_, [&](at::Tensor& tensor) {
    const auto length = static_cast<std::int64_t>(tensor.nbytes());
    tensor = bytes_.narrow(0, offset, length).view(tensor.scalar_type()).view(tensor.sizes());
    offset += rounded_up(length);
  });
}

void InputMemory::fill(const StepInputs& inputs, nn::StagedCopy* copies) {
  if (device_.is_cpu()) {
    held_ = inputs;
    return;
  }
  const auto on_host = at::empty(bytes_.sizes(), at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  auto* to = on_host.mutable_data_ptr<std::uint8_t>();
  std::vector<at::Tensor> on_device;  // what is there already
  each_tensor(inputs, [&](const at::Tensor& tensor) {
    const at::Tensor dense = tensor.contiguous();
    if (dense.is_cpu()) std::memcpy(to, dense.const_data_ptr(), dense.nbytes());
    on_device.push_back(dense.is_cpu() ? at::Tensor() : dense);
    to += rounded_up(static_cast<std::int64_t>(dense.nbytes()));
  });
  if (copies != nullptr) {
    copies->bring(on_host, bytes_);
  } else {
    bytes_.copy_(on_host, /*non_blocking=*/true);
  }
  auto from = on_device.begin();
  each_tensor(held_, [&](const at::Tensor& tensor) {
    if (from->defined()) tensor.copy_(*from);
    ++from;
  });
}

}  // namespace orthant
