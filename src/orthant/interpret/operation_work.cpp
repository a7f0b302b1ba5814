#include "orthant/interpret/operation_work.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "orthant/base/index.h"
#include "orthant/program/cost.h"

namespace orthant {
namespace {

// Of a weight with the rows of the first input, each an element of the weight at a time.
constexpr std::array<std::string_view, 7> kProducts = {"project",        "product_back",        "product_weight",
                                                       "expert_product", "expert_product_back", "expert_product_weight",
                                                       "head_loss"};

double attention_flops(const Program& program, const Operation& operation, const Frame& frame, bool backward) {
  const auto& pass = frame.pass;
  // What attention makes, or its gradient: its channels are those of the heads that this rank has.
  const int attended = backward ? operation.in.front() : operation.out[operation.name.starts_with("rotary") ? 1 : 0];
  if (attended < 0 || pass.rows == 0) return 0;
  const auto& dims = program.values[to_index(attended)].at.dims;
  double channels = static_cast<double>(dims.back().factor);
  if (pass.tensor != nullptr && !dims.back().cuts.empty()) channels /= pass.tensor->degree();
  const double pairs = static_cast<double>(pass.sequence) * static_cast<double>(pass.whole_sequence());
  const bool masked = operation.attributes.find("causal") != nullptr && operation.attributes.find("window") != nullptr;
  const double share = masked ? attended_share(operation.attributes, pass.whole_sequence()) : 1;
  return (backward ? 8 : 4) * static_cast<double>(pass.rows) * pairs * channels * share;
}

}  // namespace

double operation_flops(const Program& program, const Operation& operation, const Frame& frame,
                       std::int64_t parameter_elements) {
  const auto& name = operation.name;
  if (name.find("attention") != std::string::npos) {
    return attention_flops(program, operation, frame, name.find("back") != std::string::npos);
  }
  if (std::ranges::find(kProducts, name) == kProducts.end() || operation.in.empty()) return 0;
  const auto rows = frame.get(operation.in.front());
  if (!rows.defined() || rows.dim() == 0) return 0;
  const auto* experts = operation.attributes.find("experts");
  const double share = experts != nullptr ? 1.0 / static_cast<double>(operation.attributes.integer("experts")) : 1.0;
  return 2 * static_cast<double>(rows.size(0)) * static_cast<double>(parameter_elements) * share;
}

std::int64_t operation_bytes(const Operation& operation, const Frame& frame, std::int64_t parameter_elements) {
  if (operation.name == "start" || operation.name == "wait") return 0;  // what travels is told by the exchange
  std::int64_t bytes = parameter_elements * static_cast<std::int64_t>(c10::elementSize(frame.compute));
  for (const int value : operation.in) {
    const auto tensor = frame.get(value);
    if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace orthant
