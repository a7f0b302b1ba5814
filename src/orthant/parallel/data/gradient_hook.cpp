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

at::Tensor encoded(const GradientHook& hook, const at::Tensor& gradients) {
  if (!hook.decode) throw ConfigError("a gradient hook without decode", {.remedy = "give both functions"});
  auto travelling = hook.encode(gradients);
  if (travelling.dim() != 1 || travelling.numel() != gradients.numel()) {
    throw ConfigError(fmt::format("a gradient hook made {} elements in {} dims of {} gradients", travelling.numel(),
                                  travelling.dim(), gradients.numel()),
                      {.remedy = "let encode return one dimension of as many elements"});
  }
  return travelling;
}

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
