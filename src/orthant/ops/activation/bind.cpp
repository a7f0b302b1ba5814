#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/nn/binding.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/dropout/site_draw.h"

namespace orthant {
namespace {

nn::ActivationKind kind_of(const Binding& b) {
  const std::string& name = b.attributes().text("kind");
  if (name == "swiglu") return nn::ActivationKind::swiglu;
  if (name == "gelu") return nn::ActivationKind::gelu;
  if (name == "gelu_tanh") return nn::ActivationKind::gelu_tanh;
  if (name == "relu") return nn::ActivationKind::relu;
  if (name == "silu") return nn::ActivationKind::silu;
  throw InternalError(fmt::format("no activation is named \"{}\"", name));
}

bool is_tanh(const Binding& b) {
  return b.attributes().text("kind") == "tanh";
}

Step bind_activation(const Binding& b) {
  if (is_tanh(b)) return [x = b.in(0), y = b.out(0)](Frame& frame) { frame[y] = frame[x].tanh(); };
  return [kind = kind_of(b), x = b.in(0), y = b.out(0), draw = SiteDraw(b, b.out(0))](Frame& frame) {
    const auto width = nn::activation_width(kind, frame[x].size(1));
    const auto grid = draw.grid(frame[x].size(0), width, frame.pass);
    frame[y] = nn::activate(kind, frame[x], grid ? &*grid : nullptr);
  };
}

// in gy, x; out the gradient of x and, where wanted, the activation.
Step bind_activation_back(const Binding& b) {
  if (is_tanh(b)) {
    return [gy = b.in(0), x = b.in(1), gx = b.out(0), again = b.out(1)](Frame& frame) {
      const at::Tensor active = frame[x].tanh();
      frame[gx] = at::tanh_backward(frame[gy], active);
      if (again >= 0) frame[again] = active;
    };
  }
  return [kind = kind_of(b), gy = b.in(0), x = b.in(1), gx = b.out(0), again = b.out(1), over = b.owns_input(),
          draw = SiteDraw(b, b.in(0))](Frame& frame) {
    const auto grid = draw.grid(frame[gy], frame.pass);
    at::Tensor gradient = over || again < 0 ? frame[gy] : frame[gy].clone();
    nn::ActivationGradient out =
        nn::activation_gradient(kind, frame[x], std::move(gradient), again >= 0, grid ? &*grid : nullptr);
    frame[gx] = std::move(out.d_x);
    if (again >= 0) frame[again] = std::move(out.activation);
  };
}

}  // namespace

std::vector<NamedBinder> activation_binders() {
  return {{"activation", bind_activation}, {"activation_back", bind_activation_back}};
}

}  // namespace orthant
