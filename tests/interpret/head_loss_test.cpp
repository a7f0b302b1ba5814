// A head and its loss as one operation, whose logits exist for a chunk of tokens at a time, by programs.
#include "interpret/unit_checks.h"
#include "ops/live_bytes.h"
#include "orthant/ops/cross_entropy/cross_entropy.h"

namespace orthant::test::head_loss_test {

constexpr double kFactor = 0.37;  // gradient of the loss
constexpr std::int64_t kHidden = 12;

// When the gradients are made.
const Way kForward{.name = "in forward", .in_forward = true};
const Way kBackward{.name = "in backward"};
const Way kSplit{.name = "split", .split = true};

// Every third label is ignored; one is out of range.
UnitCase head_case(std::int64_t rows, std::int64_t sequence, std::int64_t classes, std::int64_t chunk_rows,
                   bool bias = false) {
  UnitCase given(rows, sequence);
  const at::Tensor labels = at::arange(rows * sequence, at::kLong).mul_(7).remainder_(classes);
  labels.slice(0, 1, std::nullopt, 3).fill_(nn::CrossEntropyOptions().ignore_index);
  if (labels.numel() > 4) labels[3].fill_(classes);
  const Split split{.dim = 0};
  Recorder& r = given.recorder;
  const Value x = given.input("x", random_tensor({rows, sequence, kHidden}, 1));
  const Value ids = given.field("labels", labels.view({rows, sequence}));
  Operation joined{.name = "head_loss", .in = {x.id, ids.id}};
  joined.parameters = {r.parameter(given.parameter("weight", random_tensor({classes, kHidden}, 2), split))};
  if (bias) joined.parameters.push_back(r.parameter(given.parameter("bias", random_tensor({classes}, 3), split)));
  joined.out = {r.value("loss", {}, Number::statistic), r.value("lse", {{Sym::tokens}}, Number::statistic)};
  joined.attributes.set("classes", classes);
  joined.attributes.set("chunk_rows", chunk_rows);
  joined.attributes.set("loss", std::string("loss"));
  const Value loss{joined.out[0]};
  r.add(std::move(joined));
  given.output(loss, at::scalar_tensor(kFactor, at::kDouble));
  return given;
}

Formula formula_of(std::int64_t classes) {
  return [=](const Named& t, const nn::Pass&) {
    at::Tensor logits = at::matmul(t.at("x"), t.at("weight").t());
    if (t.contains("bias")) logits = logits + t.at("bias");
    const at::Tensor& labels = t.at("labels");
    const at::Tensor counts = labels.ge(0).logical_and(labels.lt(classes));
    const at::Tensor index = labels.where(counts, 0);
    return -(at::log_softmax(logits, -1).gather(-1, index.unsqueeze(-1)).squeeze(-1) * counts).sum();
  };
}

TEST(HeadLoss, EqualsAutogradInEveryChunkSize) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double bound = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 5e-6 : 3e-2;
    for (const auto& [rows, sequence] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 1}, {2, 5}, {3, 16}}) {
      for (const bool bias : {false, true}) {
        for (const std::int64_t chunk_rows : {0, 1, 3, 5, 48, 1000}) {
          SCOPED_TRACE(testing::Message()
                       << rows << " x " << sequence << " chunks of " << chunk_rows << (bias ? " with bias" : ""));
          const UnitCase given = head_case(rows, sequence, 33, chunk_rows, bias);
          expect_formula(given, formula_of(33), dtype, bound);
          expect_same_result(UnitRun(given, kForward, dtype).run(), UnitRun(given, kBackward, dtype).run(),
                             "in forward");
        }
      }
    }
  }
}

TEST(HeadLoss, GivesTheSameBitsWheneverGradientsAreMade) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const std::int64_t chunk_rows : {0, 4, 33}) {
      const UnitCase given = head_case(3, 11, 70, chunk_rows, /*bias=*/true);
      const Result forward = UnitRun(given, kForward, dtype).run();
      expect_same_result(UnitRun(given, kBackward, dtype).run(), forward, "in backward");
      expect_same_result(UnitRun(given, kSplit, dtype).run(), forward, "split");
      Way twice = kForward;
      twice.microbatches = 2;
      Way later = kSplit;
      later.microbatches = 2;
      expect_same_result(UnitRun(given, later, dtype).run(), UnitRun(given, twice, dtype).run(), "two microbatches");
    }
  }
}

TEST(HeadLoss, FrozenPartsGetNoGradientAndChangeNoOther) {
  const UnitCase given = head_case(2, 9, 20, 4, /*bias=*/true);
  const Result whole = UnitRun(given, kBackward, at::kDouble).run();
  for (unsigned bits = 1; bits < 8; ++bits) {
    Way way = kForward;
    std::vector<std::string> without;
    if ((bits & 1U) == 0) way.frozen.emplace_back("weight");
    if ((bits & 2U) == 0) way.frozen.emplace_back("bias");
    if ((bits & 4U) == 0) way.constant.emplace_back("x");
    without = way.frozen;
    without.insert(without.end(), way.constant.begin(), way.constant.end());
    for (const auto& [split, in_forward] : {std::pair(false, true), {false, false}, {true, false}}) {
      way.split = split;
      way.in_forward = in_forward;
      expect_same_result(UnitRun(given, way, at::kDouble).run(), whole, "frozen parts", without);
    }
  }
}

TEST(HeadLoss, AnEvaluationGivesTheSameAndAddsNothing) {
  const UnitCase given = head_case(2, 9, 20, 4);
  const Result expected = UnitRun(given, kForward, at::kFloat).run();
  UnitRun run(given, {.evaluate = true}, at::kFloat);
  expect_same_bits(run.run().y, expected.y, "loss");
  EXPECT_TRUE(run.parameter("weight").fresh);
}

TEST(HeadLoss, OverTpEqualsOneRank) {
  for (const bool bias : {false, true}) {
    expect_axis(head_case(2, 7, 35, 4, bias), {2, 3}, at::kDouble, 1e-12,
                {kForward, kSplit, {.name = "all again", .remake = {.all = true}}});
  }
}

TEST(HeadLoss, WithoutSumsOverTpResultsDiffer) {
  const UnitCase given = head_case(2, 7, 35, 4);
  const Result whole = UnitRun(given, kForward, at::kDouble).run();
  run_axis(2, {}, [&](ThreadAxis& axis) {
    axis.leave_out("loss");
    EXPECT_GT((UnitRun(given, kForward, at::kDouble, &axis).run().y - whole.y).abs().item<double>(), 1e-3);
  });
}

TEST(HeadLoss, HasTheLogitsOfOneChunkAtATime) {
  constexpr std::int64_t kRows = 256, kClasses = 500, kChunk = 8;
  auto& live = nn::LiveBytes::instance();
  const auto peak_of = [&](std::int64_t chunk_rows, const Way& way) {
    const UnitCase given = head_case(kRows, 1, kClasses, chunk_rows);
    UnitRun run(given, way, at::kFloat);
    live.reset_peak();
    const std::int64_t before = live.now();
    run.run();
    return live.peak() - before;
  };
  const std::int64_t logits = kRows * kClasses * static_cast<std::int64_t>(sizeof(float));
  for (const Way& way : {kForward, kBackward, kSplit}) {
    EXPECT_GE(peak_of(0, way), logits) << way.name;
    EXPECT_LT(peak_of(kChunk, way), logits / 2) << way.name;
  }
}

}  // namespace orthant::test::head_loss_test
