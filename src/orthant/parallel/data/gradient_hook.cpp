#include "orthant/parallel/data/gradient_hook.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

const std::vector<std::string> kHooks = {"none", "bf16"};

}  // namespace

GradientHook bf16_hook() {
  return {[](const at::Tensor& gradients) { return gradients.to(at::kBFloat16); },
          [](const at::Tensor& travelled, const at::Tensor& gradients) { gradients.copy_(travelled); }};
}

GradientHook named_hook(std::string_view name) {
  if (name == "none") return {};
  if (name == "bf16") return bf16_hook();
  throw ConfigError(fmt::format("parallel.comm_hook: unknown value \"{}\"", name),
                    {.remedy = did_you_mean(name, kHooks)});
}

}  // namespace orthant
