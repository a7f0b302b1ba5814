#include "orthant/nn/loss.h"

#include "nn/live_bytes.h"
#include "nn/oracle.h"
#include "orthant/base/error.h"
#include "orthant/nn/cross_entropy.h"
#include "orthant/nn/kernels/softmax.h"

namespace orthant::nn {
namespace loss_test {

struct Case {
  at::Tensor logits, targets;
  CrossEntropyOptions options;

  // Every third target is ignored unless all count.
  Case(std::vector<std::int64_t> leading, std::int64_t classes, at::ScalarType dtype, bool all = false) {
    targets = at::arange(c10::multiply_integers(leading), at::kLong).mul_(7).remainder_(classes).view(leading);
    if (!all) targets.view({-1}).slice(0, 1, std::nullopt, 3).fill_(options.ignore_index);
    leading.push_back(classes);
    logits = make_input(random_tensor(leading, 1, dtype).mul_(3));
  }

  // Consumed logits are a copy, as a projection's output would be.
  at::Tensor run(Pass& pass) {
    return cross_entropy(options.consume_logits ? logits.clone() : logits, targets, options, pass);
  }
};

struct Oracle {
  at::Tensor loss, gradient;
};

// By autograd in float64, for a gradient of the loss of `factor`.
Oracle oracle(const Case& given, double factor = 1) {
  const at::Tensor logits = given.logits.detach().to(at::kDouble).clone().requires_grad_();
  const at::Tensor scores = at::log_softmax(logits, -1);
  const at::Tensor counts = given.targets.ne(given.options.ignore_index);
  const at::Tensor index = given.targets.where(counts, 0);
  at::Tensor weight = counts.to(at::kDouble);
  if (given.options.class_weights.defined()) {
    weight = weight * given.options.class_weights.to(at::kDouble).index({index});
  }
  const at::Tensor loss = -(scores.gather(-1, index.unsqueeze(-1)).squeeze(-1) * weight).sum();
  run_backward(loss, at::scalar_tensor(factor, at::kDouble));
  return {loss, logits.grad()};
}

void expect_oracle(Case& given, double factor) {
  Pass pass;
  const at::Tensor loss = given.run(pass);
  const at::ScalarType dtype = given.logits.scalar_type();
  EXPECT_EQ(loss.scalar_type(), dtype == at::kDouble ? at::kDouble : at::kFloat);
  EXPECT_EQ(loss.dim(), 0);
  run_backward(loss, at::scalar_tensor(factor, loss.options().requires_grad(false)));
  const Oracle expected = oracle(given, factor);
  const double relative = dtype == at::kDouble ? 1e-13 : 1e-6;
  expect_close(loss, expected.loss, relative, relative, "loss");
  const double bound = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 5e-7 : 1e-2;
  expect_close(given.logits.grad(), expected.gradient, bound, bound * factor, "gradient");
}

TEST(CrossEntropy, EqualsAutogradInEveryDtypeAndShape) {
  const std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> shapes = {
      {{6}, 5}, {{1}, 1}, {{2, 3}, 33}, {{3}, 2100}, {{2}, 4096}, {{40}, 16}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [leading, classes] : shapes) {
      for (const bool consume : {false, true}) {
        for (const bool weighted : {false, true}) {
          SCOPED_TRACE(testing::Message() << c10::toString(dtype) << " [" << at::IntArrayRef(leading) << "] of "
                                          << classes << (consume ? " consumed" : "") << (weighted ? " weighted" : ""));
          Case given(leading, classes, dtype);
          given.options.consume_logits = consume;
          if (weighted) given.options.class_weights = random_tensor({classes}, 4, at::kFloat).abs();
          expect_oracle(given, 0.37);
        }
      }
    }
  }
}

TEST(CrossEntropy, GradientIsThatOfCentralDifferences) {
  Case given({2, 3}, 5, at::kDouble);
  given.options.class_weights = random_tensor({5}, 4).abs();
  Pass pass;
  run_backward(given.run(pass), at::scalar_tensor(1.0, at::kDouble));
  expect_numerical(
      given.logits.grad(), [&] { return given.run(pass); }, given.logits, at::ones({}, at::kDouble), "logits");
}

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
  Pass pass;
  EXPECT_TRUE(given.run(pass).isnan().item<bool>());
}

TEST(CrossEntropy, LargeAndMaskedLogitsStayExact) {
  at::NoGradGuard no_grad;
  const float hidden = -std::numeric_limits<float>::infinity();
  Pass pass;
  // The highest comes late and far above the rest; some classes are hidden.
  at::Tensor logits = at::full({1, 5000}, -300.0f);
  logits[0].narrow(0, 0, 2048).fill_(hidden);
  logits[0][4999].fill_(1000);
  logits[0][4998].fill_(999);
  const at::Tensor loss = cross_entropy(logits, at::full({1}, 4998, at::kLong), {}, pass);
  EXPECT_NEAR(loss.item<float>(), 1 + std::log1p(std::exp(-1.0)), 1e-6);
}

TEST(CrossEntropy, ConsumedLogitsBecomeTheirGradient) {
  Case given({4, 5}, 64, at::kFloat);
  given.options.consume_logits = true;
  Pass pass;
  const std::int64_t before = LiveBytes::instance().now();
  at::Tensor consumed = given.logits.clone();
  const at::Tensor loss = cross_entropy(consumed, given.targets, given.options, pass);
  const auto logits_bytes = static_cast<std::int64_t>(consumed.nbytes());
  EXPECT_LE(LiveBytes::instance().now() - before, logits_bytes + 20 * 8 + 4) << "logits, one double a row, the loss";
  run_backward(loss, at::scalar_tensor(1.0f));
  expect_close(consumed, oracle(given).gradient, 1e-6, 1e-6, "the logits' memory");
  expect_same_bits(given.logits.grad(), consumed, "gradient");
}

TEST(CrossEntropy, ASecondBackwardThroughConsumedLogitsIsRefused) {
  Case given({4}, 6, at::kFloat);
  given.options.consume_logits = true;
  Pass pass;
  const at::Tensor loss = given.run(pass);
  const auto backward = [&] {
    torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::impl::gradient_edge(loss)}, {at::scalar_tensor(1.0f)}, /*keep_graph=*/true, false, true, {});
  };
  backward();
  try {
    backward();
    FAIL() << "not refused";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("second backward"), std::string::npos) << error.what();
  }
}

TEST(CrossEntropy, WithoutGradModeThereIsNoGraphAndTheSameValue) {
  Case given({4, 5}, 64, at::kFloat);
  Pass pass;
  const at::Tensor expected = given.run(pass);
  at::NoGradGuard no_grad;
  const at::Tensor loss = given.run(pass);
  EXPECT_FALSE(loss.requires_grad());
  expect_same_bits(loss, expected, "loss");
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

}  // namespace loss_test
}  // namespace orthant::nn
