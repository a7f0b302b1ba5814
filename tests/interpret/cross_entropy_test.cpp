// The loss of logits by programs: whole, and cut over tp.
#include "orthant/ops/cross_entropy/cross_entropy.h"
#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::cross_entropy_test {

constexpr double kFactor = 0.37;  // gradient of the loss

std::vector<double> class_weights(std::int64_t classes) {
  const at::Tensor weights = random_tensor({classes}, 4).abs();
  return {weights.const_data_ptr<double>(), weights.const_data_ptr<double>() + classes};
}

// Every third target is ignored; where there are more than four, one is out of range.
at::Tensor labels_of(std::int64_t rows, std::int64_t sequence, std::int64_t classes) {
  const at::Tensor labels = at::arange(rows * sequence, at::kLong).mul_(7).remainder_(classes);
  labels.slice(0, 1, std::nullopt, 3).fill_(nn::CrossEntropyOptions().ignore_index);
  if (labels.numel() > 4) labels[3].fill_(classes);
  return labels.view({rows, sequence});
}

UnitCase loss_case(std::int64_t rows, std::int64_t sequence, std::int64_t classes, bool weighted) {
  UnitCase given(rows, sequence);
  const Value logits = given.input("logits", random_tensor({rows, sequence, classes}, 1) * 3, Split{.dim = 2});
  const Value labels = given.field("labels", labels_of(rows, sequence, classes));
  ops::LossKind kind{.classes = classes};
  if (weighted) kind.class_weights = class_weights(classes);
  given.output(ops::cross_entropy(given.recorder, logits, labels, kind), at::scalar_tensor(kFactor, at::kDouble));
  return given;
}

Formula formula_of(std::int64_t classes, bool weighted) {
  return [=](const Named& t, const nn::Pass&) {
    const at::Tensor& labels = t.at("labels");
    const at::Tensor counts = labels.ge(0).logical_and(labels.lt(classes));
    const at::Tensor index = labels.where(counts, 0);
    at::Tensor weight = counts.to(at::kDouble);
    if (weighted) weight = weight * at::tensor(class_weights(classes), at::kDouble).index({index});
    return -(at::log_softmax(t.at("logits"), -1).gather(-1, index.unsqueeze(-1)).squeeze(-1) * weight).sum();
  };
}

double bound_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 1e-6 : 1e-2;
}

TEST(CrossEntropy, EqualsAutogradInEveryDtypeAndShape) {
  struct Sizes {
    std::int64_t rows, sequence, classes;
  };
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, sequence, classes] :
         {Sizes{6, 1, 5}, {1, 1, 1}, {2, 3, 33}, {3, 1, 2100}, {2, 1, 4096}, {40, 1, 16}, {4, 5, 64}}) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << sequence << " of " << classes
                                        << (weighted ? " weighted" : ""));
        const UnitCase given = loss_case(rows, sequence, classes, weighted);
        expect_formula(given, formula_of(classes, weighted), dtype, bound_of(dtype));
        const Result result = UnitRun(given, {}, dtype).run();
        EXPECT_EQ(result.y.scalar_type(), dtype == at::kDouble ? at::kDouble : at::kFloat);
        EXPECT_EQ(result.y.dim(), 0);
        // Over its logits, where nobody reads them any more.
        const Result over = UnitRun(given, {.name = "consumed", .owns_inputs = true}, dtype).run();
        expect_same_result(over, result, "consumed logits");
      }
    }
  }
}

TEST(CrossEntropy, GradientIsThatOfCentralDifferences) {
  expect_central_differences(loss_case(2, 3, 5, /*weighted=*/true));
}

TEST(CrossEntropy, ConsumedLogitsBecomeTheirGradient) {
  const UnitCase given = loss_case(4, 5, 64, false);
  for (const bool owns : {false, true}) {
    UnitRun run(given, {.owns_inputs = owns}, at::kFloat);
    EXPECT_EQ(run.kept(), std::vector<std::string>{"lse"}) << "beside logits and labels";
    Frame frame;
    run.forward(frame, pass_at(0));
    const at::Tensor logits = run.handed(0);
    const at::Tensor gradient = run.backward(frame).at("logits");
    EXPECT_EQ(gradient.is_alias_of(logits), owns);
  }
}

TEST(CutCrossEntropy, EqualsOneRank) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double bound = dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-6 : 1e-2;
    for (const auto& [tokens, classes] :
         {std::pair<std::int64_t, std::int64_t>{6, 5}, {7, 33}, {4, 4}, {3, 2100}, {9, 34}}) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(testing::Message() << tokens << " of " << classes << " " << c10::toString(dtype));
        auto ways = other_ways();
        ways.push_back({.name = "consumed", .owns_inputs = true});
        expect_axis(loss_case(1, tokens, classes, weighted), {2, 3, 4}, dtype, bound, ways);
      }
    }
  }
}

TEST(CutCrossEntropy, ExchangesThreeNumbersPerTokenForward) {
  const Calls calls = calls_of(loss_case(1, 7, 33, true), {}, {}, 3);
  EXPECT_EQ(calls.all.size(), 3U);
  for (const auto& call : calls.all) {
    EXPECT_EQ(call.elements, 7) << call.kind;
    if (call.kind == "sum") EXPECT_EQ(call.subject, std::vector<std::string>{kUnit});
  }
}

TEST(CutCrossEntropy, LossHasTheSameBitsOnAllRanks) {
  const UnitCase given = loss_case(1, 9, 34, true);
  std::vector<at::Tensor> losses(4);
  run_axis(4, {}, [&](ThreadAxis& axis) {
    losses[static_cast<std::size_t>(axis.coordinate())] = UnitRun(given, {}, at::kFloat, &axis).run().y;
  });
  for (const at::Tensor& loss : losses) expect_same_bits(loss, losses[0], "loss");
}

TEST(CutCrossEntropy, AnEvaluationGivesTheSame) {
  const UnitCase given = loss_case(1, 6, 13, true);
  run_axis(3, {}, [&](ThreadAxis& axis) {
    const at::Tensor expected = UnitRun(given, {}, at::kFloat, &axis).run().y;
    expect_same_bits(UnitRun(given, {.evaluate = true}, at::kFloat, &axis).run().y, expected, "loss");
  });
}

TEST(CutCrossEntropy, WithoutItsSumsTheResultDiffers) {
  const UnitCase given = loss_case(1, 6, 12, true);
  const Result whole = UnitRun(given, {}, at::kDouble).run();
  run_axis(2, {}, [&](ThreadAxis& axis) {
    axis.leave_out(kUnit);
    UnitRun run(given, {}, at::kDouble, &axis);
    const Result part = run.run();
    EXPECT_GT((part.y - whole.y).abs().item<double>(), 0.01);
    const at::Tensor expected = run.part(given.inputs()[0], whole.gradients.at("logits"));
    EXPECT_GT((part.gradients.at("logits") - expected).abs().max().item<double>(), 0.001);
  });
}

}  // namespace orthant::test::cross_entropy_test
