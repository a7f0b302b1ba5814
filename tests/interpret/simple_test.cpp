// Dropout, sums and what moves values about, by programs.
#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::simple_test {

constexpr double kP = 0.3;

UnitCase dropout_case(const std::vector<std::int64_t>& shape, bool residual) {
  UnitCase given(shape[0], shape.size() == 3 ? shape[1] : 1);
  Value y = ops::dropout(given.recorder, given.input("x", random_tensor(shape, 1)), kP, "site");
  if (residual) y = ops::add(given.recorder, y, given.input("residual", random_tensor(shape, 2)));
  given.output(y, random_tensor(shape, 3));
  return given;
}

at::Tensor dropout_formula(const Named& t, const nn::Pass& pass) {
  const at::Tensor y = t.at("x") * factors(pass, "site", kP, t.at("x").sizes());
  return t.contains("residual") ? y + t.at("residual") : y;
}

TEST(DropoutProgram, ScalesForwardAndBackwardByTheSameFactors) {
  const std::vector<std::vector<std::int64_t>> shapes = {{5, 33}, {2, 3, 40}, {0, 3, 8}, {0, 8}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& shape : shapes) {
      for (const bool residual : {false, true}) {
        const UnitCase given = dropout_case(shape, residual);
        expect_formula(given, dropout_formula, dtype, nn::tolerance(dtype));
        if (residual) {
          expect_same_bits(UnitRun(given, {}, dtype).run().gradients.at("residual"), given.output().value.to(dtype),
                           "the residual's gradient stays whole");
        }
      }
    }
  }
}

TEST(DropoutProgram, KeepsNothing) {
  for (const bool residual : {false, true}) {
    EXPECT_TRUE(UnitRun(dropout_case({4, 6}, residual), {}, at::kFloat).program().kept.empty());
  }
}

TEST(DropoutProgram, AnEvaluationDropsNothing) {
  const UnitCase given = dropout_case({2, 3, 40}, false);
  UnitRun run(given, {.evaluate = true}, at::kFloat);
  EXPECT_TRUE(run.program().forward.empty()) << to_string(run.program(), UnitSizes{});
  expect_same_bits(run.run().y, given.inputs()[0].value.to(at::kFloat), "y");
}

TEST(DropoutProgram, OfProbabilityZeroIsNoOperation) {
  Recorder r;
  const Value x = r.tokens("x", 3);
  EXPECT_EQ(ops::dropout(r, x, 0, "site").id, x.id);
  EXPECT_TRUE(r.finish().operations.empty());
}

UnitCase first_token_case(std::int64_t rows, std::int64_t sequence) {
  UnitCase given(rows, sequence);
  const Value x = given.input("x", random_tensor({rows, sequence, 6}, 1));
  given.output(ops::first_token(given.recorder, x), random_tensor({rows, 6}, 2));
  return given;
}

at::Tensor first_token_formula(const Named& t, const nn::Pass& /*pass*/) {
  return t.at("x").select(1, 0);
}

TEST(FirstToken, EqualsAutogradAndOneRank) {
  for (const auto& [rows, sequence] : {std::pair<std::int64_t, std::int64_t>{3, 4}, {1, 3}, {5, 1}, {2, 2}, {0, 3}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << sequence);
    const UnitCase given = first_token_case(rows, sequence);
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16})
      expect_formula(given, first_token_formula, dtype, 0);
    expect_axis(given, {2, 3, 4}, at::kDouble, 0);
  }
}

TEST(FirstToken, SumsOverRanksForwardAlone) {
  const UnitCase given = first_token_case(3, 4);
  EXPECT_EQ(calls_of(given, {}).kinds, "");
  const Calls calls = calls_of(given, {.sequence_parallel = true});
  EXPECT_EQ(calls.kinds, "sum ");
  EXPECT_EQ(calls.all[0].subject, std::vector<std::string>{kUnit});
}

// Channels that ranks have cut, of which everybody reads all: of tokens whose number ranks divide or not.
TEST(WholeOutput, GathersCutChannels) {
  for (const std::int64_t channels : {7, 12, 4}) {
    for (const std::int64_t rows : {2, 0}) {
      UnitCase given(rows, 5);
      const Value x = given.input("x", random_tensor({rows, 5, 3}, 1));
      const std::string weight = given.parameter("weight", random_tensor({channels, 3}, 2), Split{.dim = 0});
      given.output(ops::linear(given.recorder, x, {.weight = weight, .out = channels}),
                   random_tensor({rows, 5, channels}, 3));
      // Logits are whole on an edge between units, on every rank and for all tokens.
      given.whole_output();
      SCOPED_TRACE(testing::Message() << channels << " channels of " << rows << " rows");
      expect_axis(given, {2, 3, 4}, at::kDouble, 1e-12);
      const Calls calls = calls_of(given, {});
      EXPECT_EQ(calls.kinds, "gather sum ") << "the output's channels, the input's gradient";
      EXPECT_EQ(calls.all[0].elements, rows * 5 * channels);
    }
  }
}

TEST(Concat, EqualsAutograd) {
  UnitCase given(4, 1);
  const std::vector<Value> parts = {given.input("a", random_tensor({4, 3}, 1)),
                                    given.input("b", random_tensor({4, 5}, 2)),
                                    given.input("c", random_tensor({4, 1}, 3))};
  given.output(ops::concat(given.recorder, parts), random_tensor({4, 9}, 4));
  const Formula formula = [](const Named& t, const nn::Pass&) { return at::cat({t.at("a"), t.at("b"), t.at("c")}, 1); };
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) expect_formula(given, formula, dtype, 0);
}

TEST(Waves, AddSinesAndCosinesOfPositions) {
  for (const std::int64_t width : {8, 7}) {
    UnitCase given(3, 5);
    const Value x = given.input("x", random_tensor({3, 5, width}, 1));
    given.output(ops::add_waves(given.recorder, x, 2.5), random_tensor({3, 5, width}, 2));
    const Formula formula = [width](const Named& t, const nn::Pass&) {
      at::Tensor waves = at::empty({5, width}, at::kDouble);
      for (std::int64_t position = 0; position < 5; ++position) {
        for (std::int64_t c = 0; c < width; ++c) {
          const double angle = static_cast<double>(position) *
                               std::pow(1e4, -static_cast<double>(c - c % 2) / static_cast<double>(width));
          waves[position][c].fill_(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
        }
      }
      return t.at("x") * 2.5 + waves;
    };
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) expect_formula(given, formula, dtype);
    expect_axis(given, {2, 3, 4}, at::kDouble, 1e-12);
  }
}

}  // namespace orthant::test::simple_test
