#include "orthant/ops/dropout/dropout.h"

#include "ops/dropout_factors.h"
#include "ops/oracle.h"
#include "orthant/base/error.h"

namespace orthant::nn {
namespace dropout_test {

Pass make_pass(std::int64_t first_row = 0) {
  Pass pass;
  pass.seed = 0x1234567890abcdef;
  pass.step = 17;
  pass.first_row = first_row;
  return pass;
}

// The definition, one element at a time.
at::Tensor factors_by_definition(const Pass& pass, std::string_view site, double p, std::int64_t rows,
                                 std::int64_t positions, std::int64_t channels, std::uint64_t first_position = 0,
                                 std::uint64_t first_channel = 0) {
  const RandomStream stream = pass.dropout_stream(site);
  at::Tensor factors = at::empty({rows, positions, channels}, at::kDouble);
  auto* out = factors.mutable_data_ptr<double>();
  const auto threshold = static_cast<std::uint64_t>(std::floor(p * 65536));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t s = 0; s < positions; ++s) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::uint64_t row = static_cast<std::uint64_t>(pass.first_row + r);
        const std::uint64_t position = first_position + static_cast<std::uint64_t>(s);
        const std::uint64_t index =
            (row * kMaxPositions + position) * kMaxChannels + first_channel + static_cast<std::uint64_t>(c);
        *out++ = stream.short_bits(index) < threshold ? 0 : 1 / (1 - threshold / 65536.0);
      }
    }
  }
  return factors;
}

TEST(Dropout, FactorsAreThoseOfTheRandomStream) {
  for (const std::int64_t first_row : {std::int64_t{0}, std::int64_t{5}, std::int64_t{3} << 20}) {
    for (const std::int64_t channels : {1, 2, 7, 64, 65, 131}) {
      for (const std::int64_t first_channel : {0, 1, 640}) {
        const Pass pass = make_pass(first_row);
        const auto factors = dropout_factors(pass, "a.site", 0.3, {3, 4, channels}, at::kDouble, 9, first_channel);
        expect_same_bits(
            factors,
            factors_by_definition(pass, "a.site", 0.3, 3, 4, channels, 9, static_cast<std::uint64_t>(first_channel)),
            testing::PrintToString(channels) + " channels");
      }
    }
  }
}

TEST(Dropout, TheArithmeticOfTensorsDrawsTheSame) {
  for (const std::int64_t first_channel : {0, 1, 7}) {
    for (const std::int64_t channels : {1, 8, 33}) {
      // The last is beyond the end of a stream, as heads of row 5000 are.
      for (const std::int64_t first_row : {std::int64_t{11} << 16, std::int64_t{5000} << 12}) {
        const DropoutGrid grid = dropout_grid(make_pass(first_row), "site", 0.25, {2, 5, channels}, 3, first_channel);
        const at::Tensor plain = plain_dropout_factors(grid, 10, channels, at::dtype(at::kDouble));
        expect_same_bits(apply_dropout(grid, at::ones({10, channels}, at::kDouble)), plain, "factors");
      }
    }
  }
}

TEST(Dropout, EveryInstructionSetDrawsTheSame) {
  const Pass pass = make_pass(77);
  const DropoutGrid grid = dropout_grid(pass, "site", 0.5, {1, 1, 301}, 0, 1);
  const at::Tensor expected = factors_by_definition(pass, "site", 0.5, 1, 1, 301, 0, 1).view({301});
  const at::Tensor x = random_tensor({301}, 1, at::kFloat);
  const at::Tensor residual = random_tensor({301}, 2, at::kFloat);
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    const auto table = kernels::kernels_of<kernels::DropoutKernels<float>>(isa);
    at::Tensor out = at::empty({301});
    auto* to = out.mutable_data_ptr<float>();
    table.factors(to, grid.draw, grid.index(0), 301);
    expect_close(out, expected, 0, 0, "factors");
    table.scale(to, x.const_data_ptr<float>(), grid.draw, grid.index(0), 301);
    expect_close(out, x * expected, 0, 0, "scale");
    table.add(to, residual.const_data_ptr<float>(), x.const_data_ptr<float>(), grid.draw, grid.index(0), 301);
    expect_close(out, residual + x * expected, 1e-6, 1e-6, "add");
  }
}

TEST(Dropout, DropsTheRateAskedForAndKeepsTheMean) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor factors = dropout_factors(make_pass(), "site", p, {8, 64, 256}, at::kDouble);
    const double dropped = factors.eq(0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / (8 * 64 * 256)));
    EXPECT_NEAR(factors.max().item<double>(), 1 / (1 - std::floor(p * 65536) / 65536), 1e-12);
  }
  EXPECT_EQ(dropout_factors(make_pass(), "site", 1, {2, 3, 4}, at::kFloat).abs().max().item<float>(), 0);
}

TEST(Dropout, AnyMicrobatchingAndSlicingDropsTheSame) {
  const at::Tensor all = dropout_factors(make_pass(), "site", 0.4, {6, 10, 12}, at::kFloat);
  expect_same_bits(dropout_factors(make_pass(2), "site", 0.4, {3, 10, 12}, at::kFloat), all.slice(0, 2, 5), "rows");
  expect_same_bits(dropout_factors(make_pass(), "site", 0.4, {6, 4, 12}, at::kFloat), all.slice(1, 0, 4), "shorter");
  expect_same_bits(dropout_factors(make_pass(1), "site", 0.4, {2, 5, 3}, at::kFloat, 4, 5),
                   all.slice(0, 1, 3).slice(1, 4, 9).slice(2, 5, 8), "slice");
}

TEST(Dropout, SitesStepsAndSeedsDiffer) {
  const at::Tensor base = dropout_factors(make_pass(), "site", 0.5, {1, 4, 64}, at::kFloat);
  Pass other_step = make_pass();
  ++other_step.step;
  Pass other_seed = make_pass();
  ++other_seed.seed;
  EXPECT_FALSE(at::equal(base, dropout_factors(make_pass(), "other", 0.5, {1, 4, 64}, at::kFloat)));
  EXPECT_FALSE(at::equal(base, dropout_factors(other_step, "site", 0.5, {1, 4, 64}, at::kFloat)));
  EXPECT_FALSE(at::equal(base, dropout_factors(other_seed, "site", 0.5, {1, 4, 64}, at::kFloat)));
}

TEST(Dropout, MultipliesByItsFactors) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{5, 33}, {2, 3, 40}, {0, 3, 8}, {0, 8}}) {
      const Pass pass = make_pass(3);
      const at::Tensor x = random_tensor(shape, 1, dtype), residual = random_tensor(shape, 2, dtype);
      const DropoutGrid grid = dropout_grid(pass, "site", 0.3, shape);
      const at::Tensor y = apply_dropout(grid, x);
      EXPECT_EQ(y.scalar_type(), dtype);
      expect_close(y, x.to(at::kDouble) * dropout_factors(pass, "site", 0.3, shape, at::kDouble), "y");
      expect_same_bits(dropout_sum(grid, x, residual), residual + y, "with a residual");
    }
  }
}

TEST(Dropout, ReadsStridedInputs) {
  const at::Tensor x = random_tensor({4, 5, 6}, 1);
  const at::Tensor strided = x.transpose(1, 2).contiguous().transpose(1, 2);
  ASSERT_FALSE(strided.is_contiguous());
  const DropoutGrid grid = dropout_grid(make_pass(), "site", 0.5, x.sizes());
  expect_same_bits(apply_dropout(grid, strided), apply_dropout(grid, x), "y");
  const at::Tensor spread = at::ones({1, 1, 1}, at::kDouble).expand({4, 5, 6});
  expect_same_bits(apply_dropout(grid, spread), dropout_factors(make_pass(), "site", 0.5, x.sizes(), at::kDouble),
                   "ones");
}

TEST(Dropout, DropsNothingWithoutTrainingOrProbability) {
  Pass pass = make_pass();
  EXPECT_TRUE(drops(0.5, pass));
  EXPECT_FALSE(drops(0, pass));
  pass.training = false;
  EXPECT_FALSE(drops(0.5, pass));
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Dropout, RefusesWhatItsIndexCannotName) {
  Pass pass = make_pass();
  EXPECT_NE(error_of([&] { drops(1.5, pass); }).find("a probability lies in [0, 1]"), std::string::npos);
  EXPECT_NE(error_of([&] { dropout_grid(pass, "site", 0.5, {2}); }).find("dropout site of shape [2]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { dropout_grid(pass, "site", 0.5, {0, (1 << 20) + 1, 2}); }).find("at most 1048576"),
            std::string::npos);
}

}  // namespace dropout_test
}  // namespace orthant::nn
