// Column and row products over the tensor axis, as an attention branch and an MLP branch use them, against one rank.
#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::cut_layer_test {

constexpr std::int64_t kRows = 3, kSequence = 5, kHidden = 24, kInner = 29, kHeads = 12, kHeadSize = 2;

// x -> norm -> attention + x -> dropout -> MLP + that.
UnitCase layer_case() {
  UnitCase given(kRows, kSequence);
  Recorder& r = given.recorder;
  const Split heads{.dim = 0, .blocks = {kHidden, kHidden, kHidden}, .granule = kHeadSize};
  const Value x = given.input("x", random_tensor({kRows, kSequence, kHidden}, 10));
  const Value normed = ops::rms_norm(r, x, given.parameter("norm", random_tensor({kHidden}, 1).abs()), 1e-6);
  const Value qkv = ops::linear(r, normed,
                                {.weight = given.parameter("qkv", random_tensor({3 * kHidden, kHidden}, 2), heads),
                                 .bias = given.parameter("qkv_bias", random_tensor({3 * kHidden}, 3), heads),
                                 .out = 3 * kHidden});
  const Value attended = ops::attention(r, qkv, {}, {kHeads, kHeads, kHeadSize},
                                        {.causal = true, .dropout = 0.3, .site = "probabilities"});
  const Split by_heads{.dim = 1, .granule = kHeadSize};
  const Value out = ops::linear(r, attended,
                                {.weight = given.parameter("out", random_tensor({kHidden, kHidden}, 4), by_heads),
                                 .bias = given.parameter("out_bias", random_tensor({kHidden}, 5)),
                                 .out = kHidden});
  const Value middle = ops::dropout(r, ops::add(r, out, x), 0.2, "middle");
  const Value up = ops::linear(r, middle,
                               {.weight = given.parameter("up", random_tensor({kInner, kHidden}, 6), Split{.dim = 0}),
                                .bias = given.parameter("up_bias", random_tensor({kInner}, 7), Split{.dim = 0}),
                                .out = kInner});
  const Value active = ops::activation(r, up, "gelu", 0.25, "inner");
  const Value down =
      ops::linear(r, active,
                  {.weight = given.parameter("down", random_tensor({kHidden, kInner}, 8), Split{.dim = 1}),
                   .bias = given.parameter("down_bias", random_tensor({kHidden}, 9)),
                   .out = kHidden});
  given.output(ops::add(r, down, middle), random_tensor({kRows, kSequence, kHidden}, 11));
  return given;
}

TEST(CutLayer, EqualsOneRank) {
  expect_axis(layer_case(), {2, 3, 4, 6}, at::kDouble, 1e-11);
}

TEST(CutLayer, EqualsOneRankInFloat32) {
  expect_axis(layer_case(), {2, 4}, at::kFloat, 1e-4);
}

// Two of four ranks have a token.
TEST(CutLayer, MoreRanksThanTokensLeaveSomeWithNone) {
  UnitCase given(1, 2);
  Recorder& r = given.recorder;
  const Value x = given.input("x", at::ones({1, 2, 3}, at::kDouble));
  const Value up =
      ops::linear(r, x, {.weight = given.parameter("up", at::ones({4, 3}, at::kDouble), Split{.dim = 0}), .out = 4});
  given.output(
      ops::linear(r, up, {.weight = given.parameter("down", at::ones({3, 4}, at::kDouble), Split{.dim = 1}), .out = 3}),
      at::ones({1, 2, 3}, at::kDouble));
  const Result whole = UnitRun(given, {}, at::kDouble).run();
  EXPECT_TRUE(whole.y.eq(12).all().item<bool>());
  EXPECT_TRUE(whole.gradients.at("up").eq(6).all().item<bool>());
  expect_axis(given, {4}, at::kDouble, 0);
}

// Two sums forward and two backward; or as many gathers and scatters, and two gathers more where inputs come again.
TEST(CutLayer, ExchangesWhatTheClosedFormSays) {
  const UnitCase given = layer_case();
  for (const bool split : {false, true}) {
    for (const auto& [sharing, sums, gathers] :
         {std::tuple(Sharing{}, 4, 0), std::tuple(Sharing{true, false}, 0, 4), std::tuple(Sharing{true, true}, 0, 6)}) {
      const Calls calls = calls_of(given, sharing, {.split = split});
      const auto count = [&](const char* kind) {
        return std::ranges::count(calls.all, std::string(kind), &ThreadAxis::Call::kind);
      };
      EXPECT_EQ(count("sum"), sums);
      EXPECT_EQ(count("gather"), gathers);
      EXPECT_EQ(count("scatter"), sharing.sequence_parallel ? 4 : 0);
      for (const auto& call : calls.all) EXPECT_EQ(call.elements, kRows * kSequence * kHidden) << call.kind;
    }
  }
}

// Forward the two row products, backward the two column products.
TEST(CutLayer, NamesTheParameterOfEachSum) {
  for (const bool sequence : {false, true}) {
    std::vector<std::string> found;
    for (const auto& call : calls_of(layer_case(), {.sequence_parallel = sequence}).all) {
      if (call.kind == "gather") continue;
      ASSERT_EQ(call.subject.size(), 2U) << call.kind;
      EXPECT_EQ(call.subject[0], kUnit);
      found.push_back(call.subject[1]);
    }
    EXPECT_EQ(found, (std::vector<std::string>{"unit.out", "unit.down", "unit.up", "unit.qkv"}));
  }
}

TEST(CutLayer, MissingSumsAreNoticed) {
  const UnitCase given = layer_case();
  const Result whole = UnitRun(given, {}, at::kDouble).run();
  for (const std::string name : {"unit.qkv", "unit.out", "unit.up", "unit.down"}) {
    for (const bool sequence : {false, true}) {
      run_axis(3, {.sequence_parallel = sequence}, [&](ThreadAxis& axis) {
        axis.leave_out(name);
        UnitRun run(given, {}, at::kDouble, &axis);
        const Result part = run.run();
        const at::Tensor y = run.part(given.output(), whole.y);
        const at::Tensor gx = run.part(given.inputs()[0], whole.gradients.at("x"));
        EXPECT_FALSE(at::allclose(part.y, y, 1e-3, 1e-3) && at::allclose(part.gradients.at("x"), gx, 1e-3, 1e-3))
            << name;
      });
    }
  }
}

}  // namespace orthant::test::cut_layer_test
