// Cross-entropy of logits that are cut over tp, against one rank.
#include <array>

#include "base/error_text.h"
#include "ops/oracle.h"
#include "ops/thread_axis.h"
#include "orthant/ops/cross_entropy/cross_entropy.h"

namespace orthant::nn {
namespace cross_entropy_cut_test {

constexpr double kFactor = 0.37;  // gradient of the loss

struct Case {
  at::Tensor logits, targets;  // of all classes
  CrossEntropyOptions options;

  // Every third target is ignored; one is out of range.
  Case(std::int64_t tokens, std::int64_t classes, at::ScalarType dtype = at::kDouble) {
    logits = random_tensor({1, tokens, classes}, 1, dtype).mul_(3);
    targets = at::arange(tokens, at::kLong).mul_(7).remainder_(classes).view({1, tokens});
    targets[0].slice(0, 1, std::nullopt, 3).fill_(options.ignore_index);
    targets[0][0].fill_(classes);
    options.class_weights = random_tensor({classes}, 4, at::kFloat).abs();
  }

  std::int64_t classes() const { return logits.size(2); }
};

struct Result {
  at::Tensor loss, gradient;
};

constexpr std::array<std::string_view, 1> kNames = {"loss"};

// With an axis, of its rank's classes.
Result run(const Case& given, TensorAxis* axis) {
  CrossEntropyOptions options = given.options;
  at::Tensor logits = given.logits[0];
  if (axis != nullptr) {
    options.classes = given.classes();
    const Range own = axis->part(given.classes());
    logits = logits.narrow(1, own.begin, own.size());
  }
  logits = logits.clone();
  const at::Tensor targets = given.targets[0];
  const CrossEntropyForward forward = cross_entropy_forward(logits, targets, options, axis, kNames);
  const at::Tensor d_loss = at::scalar_tensor(kFactor, forward.loss.options());
  return {forward.loss, cross_entropy_backward(logits, targets, forward.lse, d_loss, options, axis).unsqueeze(0)};
}

// A rank's result against one rank's.
void expect_part(const Result& part, const Result& whole, const TensorAxis& axis, double bound) {
  const Range own = axis.part(whole.gradient.size(2));
  expect_close(part.loss, whole.loss, bound, bound, "loss");
  expect_close(part.gradient, whole.gradient.narrow(2, own.begin, own.size()), bound, bound, "gradient");
}

TEST(CutCrossEntropy, EqualsOneRank) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {{6, 5}, {7, 33}, {4, 3}, {3, 2100}, {2, 1}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const auto& [tokens, classes] : shapes) {
      for (const bool consume : {false, true}) {
        Case given(tokens, classes, dtype);
        given.options.consume_logits = consume;
        if (consume) given.options.class_weights.reset();
        const Result whole = run(given, nullptr);
        for (const int degree : {1, 2, 3, 4}) {
          run_axis(degree, {}, [&](ThreadAxis& axis) {
            SCOPED_TRACE(testing::Message()
                         << "rank " << axis.coordinate() << " of " << degree << ", " << given.classes() << " classes "
                         << c10::toString(dtype) << (consume ? " consumed" : ""));
            const double bound = dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-6 : 1e-2;
            const Result part = run(given, &axis);
            expect_part(part, whole, axis, bound);
            ASSERT_EQ(axis.calls().size(), 3);
            for (const ThreadAxis::Call& call : axis.calls()) {
              EXPECT_EQ(call.elements, tokens) << call.kind;
              if (call.kind == "sum") EXPECT_EQ(call.subject, std::vector<std::string>{"loss"});
            }
          });
        }
      }
    }
  }
}

TEST(CutCrossEntropy, LossHasTheSameBitsOnAllRanks) {
  const Case given(9, 34, at::kFloat);
  std::vector<at::Tensor> losses(4);
  run_axis(4, {}, [&](ThreadAxis& axis) { losses[axis.coordinate()] = run(given, &axis).loss; });
  for (const at::Tensor& loss : losses) expect_same_bits(loss, losses[0], "loss");
}

TEST(CutCrossEntropy, PlainFormulasAgreeWithTheKernels) {
  for (const std::int64_t classes : {33, 3}) {
    const Case given(8, classes);
    run_axis(4, {}, [&](ThreadAxis& axis) {
      SCOPED_TRACE(testing::Message() << classes << " classes, rank " << axis.coordinate());
      const Range own = axis.part(classes);
      CrossEntropyOptions options = given.options;
      options.classes = classes;
      const at::Tensor logits = given.logits[0].narrow(1, own.begin, own.size()).contiguous();
      const at::Tensor targets = given.targets[0], d_loss = at::scalar_tensor(kFactor, at::kDouble);
      const CrossEntropyForward fused = cross_entropy_forward(logits, targets, options, &axis);
      const CrossEntropyForward plain = plain_cross_entropy_forward(logits, targets, options, &axis);
      expect_close(plain.loss, fused.loss, 1e-12, 0, "loss");
      expect_close(plain_cross_entropy_backward(logits, targets, plain.lse, d_loss, options, &axis),
                   cross_entropy_backward(logits, targets, fused.lse, d_loss, options, &axis), 1e-12, 1e-12,
                   "gradient");
      EXPECT_EQ(axis.calls().size(), 6);
    });
  }
}

TEST(CutCrossEntropy, PartsWithHiddenClassesAloneGiveNoNaN) {
  Case given(6, 12);
  given.logits.narrow(2, 0, 4).fill_(-std::numeric_limits<double>::infinity());
  given.targets.copy_(given.targets.where(given.targets.lt(0), 7));
  const Result whole = run(given, nullptr);
  ASSERT_TRUE(whole.loss.isfinite().item<bool>());
  run_axis(3, {}, [&](ThreadAxis& axis) { expect_part(run(given, &axis), whole, axis, 1e-12); });
}

TEST(CutCrossEntropy, IgnoredRowsAddNothingEvenWhenTheyAreNotFinite) {
  Case given(6, 12);
  const Result whole = run(given, nullptr);
  given.logits[0][1].fill_(std::numeric_limits<double>::quiet_NaN());
  given.logits[0][4].fill_(std::numeric_limits<double>::infinity());
  run_axis(3, {}, [&](ThreadAxis& axis) { expect_part(run(given, &axis), whole, axis, 1e-12); });
}

TEST(CutCrossEntropy, ANaNOfOneRankShowsInEveryLoss) {
  Case given(6, 12);
  given.logits[0][2][11].fill_(std::numeric_limits<double>::quiet_NaN());
  run_axis(3, {}, [&](ThreadAxis& axis) { EXPECT_TRUE(run(given, &axis).loss.isnan().item<bool>()); });
}

TEST(CutCrossEntropy, WithoutItsSumsTheResultDiffers) {
  Case given(6, 12);
  const Result whole = run(given, nullptr);
  run_axis(2, {}, [&](ThreadAxis& axis) {
    axis.leave_out("loss");
    const Result part = run(given, &axis);
    const Range own = axis.part(12);
    EXPECT_GT((part.loss - whole.loss).abs().item<double>(), 0.01);
    EXPECT_GT((part.gradient - whole.gradient.narrow(2, own.begin, own.size())).abs().max().item<double>(), 0.001);
  });
}

TEST(CutCrossEntropy, WholeLogitsExchangeNothing) {
  const Case given(6, 12);
  const Result whole = run(given, nullptr);
  run_axis(2, {}, [&](ThreadAxis& axis) {
    const auto forward = cross_entropy_forward(given.logits[0], given.targets[0], given.options, &axis, kNames);
    expect_same_bits(forward.loss, whole.loss, "loss");
    EXPECT_TRUE(axis.calls().empty());
  });
}

TEST(CutCrossEntropy, LogitsOfAnotherNumberOfClassesAreRefused) {
  const Case given(6, 12);
  run_axis(2, {}, [&](ThreadAxis& axis) {
    CrossEntropyOptions options = given.options;
    options.classes = 12;
    const auto text = error_text<InternalError>(
        [&] { cross_entropy_forward(given.logits[0], given.targets[0], options, &axis, kNames); });
    EXPECT_NE(text.find("logits of 12 classes where this rank has 6 of 12"), std::string::npos) << text;
  });
}

}  // namespace cross_entropy_cut_test
}  // namespace orthant::nn
