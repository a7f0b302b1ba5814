// The kernels of activations for every instruction set of this CPU, and the plain formulas, against each other.
#include "orthant/ops/activation/activation.h"

#include "ops/oracle.h"
#include "orthant/ops/activation/cpu_kernels.h"

namespace orthant::nn {
namespace activation_test {

constexpr ActivationKind kKinds[] = {ActivationKind::swiglu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                                     ActivationKind::relu, ActivationKind::silu};

at::Tensor formula(ActivationKind kind, const at::Tensor& x) {
  if (kind == ActivationKind::gelu) return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0)));
  if (kind == ActivationKind::gelu_tanh) {
    return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
  }
  if (kind == ActivationKind::relu) return x.clamp_min(0);
  if (kind == ActivationKind::silu) return x * at::sigmoid(x);
  const auto halves = x.chunk(2, -1);
  return halves[0] * at::sigmoid(halves[0]) * halves[1];
}

TEST(ActivationKind, PlainFunctionsAgreeWithTheKernels) {
  at::NoGradGuard no_grad;
  for (const ActivationKind kind : kKinds) {
    const at::Tensor x = random_tensor({9, 26}, 1).mul_(3);
    const at::Tensor d = random_tensor({9, activation_width(kind, 26)}, 2);
    expect_close(activate(kind, x), plain_activate(kind, x), 1e-13, 1e-14, "activation");
    const ActivationGradient plain = plain_activation_gradient(kind, x, d, true);
    const ActivationGradient fused = activation_gradient(kind, x, d.clone(), true);
    expect_close(fused.d_x, plain.d_x, 1e-13, 1e-14, "gradient");
    expect_same_bits(fused.activation, activate(kind, x), "activation of the gradient");
    EXPECT_FALSE(activation_gradient(kind, x, d.clone(), false).activation.defined());
  }
}

struct Results {
  at::Tensor activation, d_x, again;
};

// Every kernel of a table on one row of x.
template <class T>
Results run_kernels(kernels::Isa isa, ActivationKind kind, const at::Tensor& x, const at::Tensor& d) {
  const auto table = kernels::kernels_of<kernels::ActivationKernels<T>>(isa);
  Results out = {at::empty_like(d), at::empty_like(x), at::empty_like(d)};
  T* const to = out.activation.mutable_data_ptr<T>();
  T* const d_x = out.d_x.mutable_data_ptr<T>();
  T* const again = out.again.mutable_data_ptr<T>();
  const T* const from = x.const_data_ptr<T>();
  const T* const d_from = d.const_data_ptr<T>();
  if (kind == ActivationKind::swiglu) {
    table.swiglu(to, from, 1, d.numel());
    table.swiglu_gradient(d_x, again, from, d_from, 1, d.numel());
  } else if (kind == ActivationKind::relu) {
    table.relu(to, from, d.numel());
    table.relu_gradient(d_x, again, from, d_from, d.numel());
  } else if (kind == ActivationKind::silu) {
    table.silu(to, from, d.numel());
    table.silu_gradient(d_x, again, from, d_from, d.numel());
  } else if (kind == ActivationKind::gelu) {
    table.gelu(to, from, d.numel());
    table.gelu_gradient(d_x, again, from, d_from, d.numel());
  } else {
    table.gelu_tanh(to, from, d.numel());
    table.gelu_tanh_gradient(d_x, again, from, d_from, d.numel());
  }
  return out;
}

// On a fine grid over everything that does not saturate, with gates and ups of all sizes.
TEST(ActivationKernels, EveryInstructionSetIsAccurate) {
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    for (const ActivationKind kind : kKinds) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(isa) << " activation "
                                        << static_cast<int>(kind) << " " << c10::toString(dtype));
        const at::Tensor grid = at::linspace(-12, 12, 20001, at::kDouble).to(dtype);
        const at::Tensor x = kind == ActivationKind::swiglu ? at::cat({grid, at::cos(grid * 7)}) : grid;
        const at::Tensor d = at::ones_like(grid);
        const at::Tensor exact = x.to(at::kDouble).unsqueeze(0).requires_grad_();
        const at::Tensor expected = formula(kind, exact);
        run_backward(expected, at::ones_like(expected));
        const Results out =
            dtype == at::kFloat ? run_kernels<float>(isa, kind, x, d) : run_kernels<double>(isa, kind, x, d);
        const double bound = dtype == at::kFloat ? 4e-7 : 1e-14;
        expect_close(out.activation, expected[0], bound, bound, "activation");
        expect_close(out.d_x, exact.grad()[0], 2 * bound, 2 * bound, "gradient");
        expect_same_bits(out.again, out.activation, "activation of the gradient");
      }
    }
  }
}

TEST(ActivationKernels, SaturateWithoutNaNAndPassNaNOn) {
  const at::Tensor x = at::tensor({-1e30f, -200.0f, -90.0f, 90.0f, 200.0f, 1e4f, std::nanf("")});
  const at::Tensor d = at::ones_like(x);
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    for (const ActivationKind kind :
         {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu, ActivationKind::silu}) {
      const Results out = run_kernels<float>(isa, kind, x, d);
      const at::Tensor limits = at::tensor({0.0f, 0.0f, 0.0f, 90.0f, 200.0f, 1e4f});
      expect_close(out.activation.narrow(0, 1, 5), limits.narrow(0, 1, 5), 1e-6, 1e-6, "activation");
      expect_close(out.d_x.narrow(0, 1, 4), limits.gt(0).to(at::kFloat).narrow(0, 1, 4), 1e-6, 1e-6, "gradient");
      EXPECT_TRUE(out.activation[6].isnan().item<bool>());
      EXPECT_TRUE(kind == ActivationKind::relu || out.d_x[6].isnan().item<bool>());
    }
  }
}

}  // namespace activation_test
}  // namespace orthant::nn
