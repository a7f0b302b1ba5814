#include "orthant/ops/cross_entropy/cross_entropy.h"

#include "ops/oracle.h"
#include "orthant/ops/cross_entropy/cpu_kernels.h"

namespace orthant::nn {
namespace cross_entropy_test {

struct Case {
  at::Tensor logits, targets;
  CrossEntropyOptions options;

  // Every third target is ignored unless all count.
  Case(std::vector<std::int64_t> leading, std::int64_t classes, at::ScalarType dtype, bool all = false) {
    targets = at::arange(c10::multiply_integers(leading), at::kLong).mul_(7).remainder_(classes).view(leading);
    if (!all) targets.view({-1}).slice(0, 1, std::nullopt, 3).fill_(options.ignore_index);
    leading.push_back(classes);
    logits = random_tensor(leading, 1, dtype).mul_(3);
  }
};

TEST(CrossEntropy, PlainFormulasAgreeWithTheKernels) {
  at::NoGradGuard no_grad;
  for (const bool consume : {false, true}) {
    Case given({12}, 70, at::kDouble);
    given.options.consume_logits = consume;
    given.options.class_weights = random_tensor({70}, 4).abs();
    const at::Tensor logits = given.logits.detach(), d_loss = at::scalar_tensor(1.7, at::kDouble);
    const CrossEntropyForward fused = cross_entropy_forward(logits, given.targets, given.options);
    const CrossEntropyForward plain = plain_cross_entropy_forward(logits, given.targets, given.options);
    expect_close(plain.loss, fused.loss, 1e-13, 0, "loss");
    const at::Tensor left = logits.clone(), right = logits.clone();
    const at::Tensor plain_gradient =
        plain_cross_entropy_backward(left, given.targets, plain.lse, d_loss, given.options);
    expect_close(plain_gradient, cross_entropy_backward(right, given.targets, fused.lse, d_loss, given.options), 1e-13,
                 1e-14, "gradient");
    EXPECT_EQ(plain_gradient.is_alias_of(left), consume);
    const at::Tensor narrow = logits.to(at::kBFloat16);
    const CrossEntropyForward low = plain_cross_entropy_forward(narrow, given.targets, given.options);
    EXPECT_EQ(low.loss.scalar_type(), at::kFloat);
    expect_close(low.loss, fused.loss, 1e-2, 1e-2, "loss of bfloat16");
    expect_close(plain_cross_entropy_backward(narrow, given.targets, low.lse, d_loss, given.options), plain_gradient,
                 5e-2, 1e-2, "gradient of bfloat16");
  }
}

TEST(CrossEntropy, IgnoredRowsAddNothingEvenWhenTheyAreNotFinite) {
  for (const bool plain : {false, true}) {
    Case given({4}, 6, at::kFloat, true);
    given.options.ignore_index = 3;
    given.targets.copy_(at::tensor({0, 3, 2, 3}, at::kLong));
    at::NoGradGuard no_grad;
    given.logits[1].fill_(std::numeric_limits<float>::quiet_NaN());
    given.logits[3].fill_(std::numeric_limits<float>::infinity());
    const auto forward = plain ? plain_cross_entropy_forward : cross_entropy_forward;
    const auto backward = plain ? plain_cross_entropy_backward : cross_entropy_backward;
    const CrossEntropyForward result = forward(given.logits, given.targets, given.options, nullptr, {});
    EXPECT_TRUE(result.loss.isfinite().item<bool>());
    const at::Tensor gradient =
        backward(given.logits, given.targets, result.lse, at::scalar_tensor(2.0), given.options, nullptr);
    EXPECT_EQ(gradient[1].abs().max().item<float>(), 0);
    EXPECT_EQ(gradient[3].abs().max().item<float>(), 0);
    EXPECT_GT(gradient[0].abs().max().item<float>(), 0);
  }
}

TEST(CrossEntropy, TargetsOutOfRangeCountAsIgnored) {
  for (const bool plain : {false, true}) {
    Case given({3}, 6, at::kFloat, true);
    given.options.class_weights = at::ones({6});
    given.targets.copy_(at::tensor({2, 6, -5}, at::kLong));
    at::NoGradGuard no_grad;
    const auto forward = plain ? plain_cross_entropy_forward : cross_entropy_forward;
    const auto backward = plain ? plain_cross_entropy_backward : cross_entropy_backward;
    const CrossEntropyForward result = forward(given.logits, given.targets, given.options, nullptr, {});
    expect_close(result.loss, -at::log_softmax(given.logits, -1)[0][2], 1e-6, 1e-6, "loss");
    const at::Tensor gradient =
        backward(given.logits, given.targets, result.lse, at::scalar_tensor(1.0), given.options, nullptr);
    EXPECT_EQ(gradient.narrow(0, 1, 2).abs().max().item<float>(), 0);
  }
}

TEST(CrossEntropy, ANaNOfACountedRowShowsInTheLoss) {
  Case given({2}, 50, at::kFloat, true);
  at::NoGradGuard no_grad;
  given.logits[1][17].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(cross_entropy_forward(given.logits, given.targets, {}).loss.isnan().item<bool>());
}

TEST(CrossEntropy, LargeAndMaskedLogitsStayExact) {
  at::NoGradGuard no_grad;
  const float hidden = -std::numeric_limits<float>::infinity();
  // The highest comes late and far above the rest; some classes are hidden.
  at::Tensor logits = at::full({1, 5000}, -300.0f);
  logits[0].narrow(0, 0, 2048).fill_(hidden);
  logits[0][4999].fill_(1000);
  logits[0][4998].fill_(999);
  const at::Tensor loss = cross_entropy_forward(logits, at::full({1}, 4998, at::kLong), {}).loss;
  EXPECT_NEAR(loss.item<float>(), 1 + std::log1p(std::exp(-1.0)), 1e-6);
}

TEST(SoftmaxKernels, EveryInstructionSetEqualsTheFormula) {
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    const auto table = kernels::kernels_of<kernels::SoftmaxKernels<float>>(isa);
    for (const std::int64_t width : {1, 7, 64, 100, 2048, 2049, 5000}) {
      const at::Tensor x = random_tensor({width}, 1, at::kFloat).mul_(8);
      const double expected = at::logsumexp(x.to(at::kDouble), {0}).item<double>();
      const double lse = table.log_sum_exp(x.const_data_ptr<float>(), width);
      EXPECT_NEAR(lse, expected, 1e-6 * std::max(1.0, std::abs(expected))) << width;
      at::Tensor p = at::full({width + 1}, 7.0f);
      table.probabilities(p.mutable_data_ptr<float>(), x.const_data_ptr<float>(), width, static_cast<float>(lse), 2.0f);
      expect_close(p.narrow(0, 0, width), at::exp(x.to(at::kDouble) - lse) * 2, 3e-6, 1e-37, "probabilities");
      EXPECT_EQ(p[width].item<float>(), 7) << "written beyond the row";
    }
  }
}

}  // namespace cross_entropy_test
}  // namespace orthant::nn
