#include "orthant/nn/attention.h"

#include "nn/attention_case.h"
#include "nn/live_bytes.h"
#include "orthant/base/error.h"

namespace orthant::nn {
namespace attention_test {

using Shape = AttentionShape;
using Case = AttentionCase;

// 0 or 1 / (1 - p) for each (row, head, query, key), from the stream's definition.
at::Tensor stream_factors(const Case& given, const Pass& pass) {
  const Shape& s = given.shape;
  const RandomStream stream = pass.dropout_stream(given.options.site);
  at::Tensor factors = at::ones({s.rows, s.heads, s.sequence, s.sequence}, at::kDouble);
  if (s.dropout == 0) return factors;
  const auto below = static_cast<std::uint64_t>(s.dropout * 65536);
  double* out = factors.mutable_data_ptr<double>();
  for (std::int64_t row = pass.first_row; row < pass.first_row + s.rows; ++row) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      for (std::int64_t query = 0; query < s.sequence; ++query) {
        for (std::int64_t key = 0; key < s.sequence; ++key) {
          const auto place = static_cast<std::uint64_t>((row * 4096 + head) * (1 << 20) + query);
          const std::uint64_t index = place * (1 << 20) + static_cast<std::uint64_t>(key);
          *out++ = stream.short_bits(index) < below ? 0 : 1 / (1 - static_cast<double>(below) / 65536);
        }
      }
    }
  }
  return factors;
}

at::Tensor rotated(const at::Tensor& x, const Shape& s) {
  const at::Tensor inverse = at::pow(1e4, -at::arange(0, s.head_size, 2, at::kDouble) / s.head_size);
  const at::Tensor angle = at::outer(at::arange(s.sequence, at::kDouble), inverse);
  const at::Tensor cos = kMagnitude * angle.cos(), sin = kMagnitude * angle.sin();
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

struct Oracle {
  at::Tensor y, qkv, residual, weight, bias;  // all but y are gradients
};

Oracle oracle(const Case& given, const Pass& pass) {
  const Shape& s = given.shape;
  const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).clone().requires_grad_(); };
  const at::Tensor qkv = leaf(given.qkv), residual = leaf(given.residual);
  const at::Tensor weight = leaf(given.weight.value), bias = leaf(given.bias.value);
  const auto parts = qkv.view({s.rows, s.sequence, -1, s.head_size})
                         .transpose(1, 2)
                         .split_with_sizes({s.heads, s.kv_heads, s.kv_heads}, 1);
  const auto spread = [&](const at::Tensor& x) { return x.repeat_interleave(s.heads / s.kv_heads, 1); };
  const at::Tensor q = s.rotary ? rotated(parts[0], s) : parts[0];
  const at::Tensor k = spread(s.rotary ? rotated(parts[1], s) : parts[1]);
  at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(s.head_size));
  const double hidden = -std::numeric_limits<double>::infinity();
  if (s.causal) scores = scores.masked_fill(at::ones({s.sequence, s.sequence}, at::kBool).triu(1), hidden);
  if (s.masked) scores = scores.masked_fill(given.options.key_mask.logical_not().unsqueeze(1).unsqueeze(1), hidden);
  // Queries that see nothing take part with probabilities of 0.
  const at::Tensor seen = scores.isneginf().logical_not();
  scores = scores.masked_fill(seen.any(-1, true).logical_not(), 0);
  const at::Tensor p = at::softmax(scores, -1) * seen * stream_factors(given, pass);
  const at::Tensor out = at::matmul(p, spread(parts[2])).transpose(1, 2).flatten(2);
  const at::Tensor y = at::matmul(out, weight.t()) + bias + residual;
  run_backward(y, given.gy.to(at::kDouble));
  return {y, qkv.grad(), residual.grad(), weight.grad(), bias.grad()};
}

void expect_oracle(Case& given, const at::Tensor& y, const Pass& pass, double scale = 1) {
  const Oracle expected = oracle(given, pass);
  const double bound = tolerance(given.qkv.scalar_type()) * 4;
  const auto near = [&](const at::Tensor& actual, const at::Tensor& wanted, const char* what) {
    expect_close(actual, wanted, bound, bound * std::max(1.0, wanted.abs().max().item<double>()), what);
  };
  near(y, expected.y, "y");
  near(given.qkv.grad(), expected.qkv * scale, "gradient of qkv");
  near(given.residual.grad(), expected.residual * scale, "gradient of residual");
  near(given.weight.gradient, expected.weight * scale, "gradient of weight");
  near(given.bias.gradient, expected.bias * scale, "gradient of bias");
}

TEST(Attention, EqualsAutogradInEveryDtypeAndShape) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Shape& shape : kAttentionShapes) {
      SCOPED_TRACE(testing::Message() << c10::toString(dtype) << ": " << text(shape));
      Case given(shape, dtype);
      Pass pass = pass_at(7, 5, 11);
      const at::Tensor y = given.run(pass);
      EXPECT_EQ(y.scalar_type(), dtype);
      run_backward(y, given.gy);
      expect_oracle(given, y, pass);
    }
  }
}

TEST(Attention, OfNoRowsIsEmpty) {
  Case given({0, 4, 2, 1, 4}, at::kFloat);
  Pass pass;
  const at::Tensor y = given.run(pass);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 4, 5}));
  run_backward(y, given.gy);
  EXPECT_EQ(given.weight.gradient.abs().max().item<float>(), 0);
}

TEST(Attention, GradientsAreThoseOfCentralDifferences) {
  for (const double dropout : {0.0, 0.3}) {
    Case given({2, 5, 4, 2, 4, true, true, true, dropout}, at::kDouble);
    Pass pass;
    run_backward(given.run(pass), given.gy);
    const auto f = [&] { return given.run(pass); };
    expect_numerical(given.qkv.grad(), f, given.qkv, given.gy, "qkv");
    expect_numerical(given.weight.gradient, f, given.weight.value, given.gy, "weight");
    expect_numerical(given.bias.gradient, f, given.bias.value, given.gy, "bias");
  }
}

TEST(Attention, WithoutBiasOrResidual) {
  Case given(Shape(), at::kDouble);
  Pass pass;
  const at::Tensor y = attention(given.qkv.clone(), given.weight, nullptr, given.options, pass);
  const Oracle expected = oracle(given, pass);
  expect_close(y, expected.y - given.bias.value.detach() - given.residual.detach(), "y");
  run_backward(y, given.gy);
  expect_close(given.qkv.grad(), expected.qkv, "gradient of qkv");
  EXPECT_TRUE(given.bias.fresh);
}

TEST(Attention, ASecondBackwardAddsToTheFirst) {
  Case given({2, 9, 4, 2, 6, true, true, true, 0.2}, at::kFloat);
  Pass pass;
  at::Tensor y;
  for (int i = 0; i < 2; ++i) {
    y = given.run(pass);
    run_backward(y, given.gy);
  }
  expect_oracle(given, y, pass, 2);
}

// Runs two microbatches the usual way and as `pass` asks for, and compares all gradients bit for bit.
void expect_same_gradients(const Shape& shape, at::ScalarType dtype, const Pass& asked) {
  SCOPED_TRACE(testing::Message() << c10::toString(dtype) << ": " << text(shape));
  Case now(shape, dtype), other(shape, dtype);
  Pass usual, pass = asked;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor expected = now.run(usual), y = other.run(pass);
    expect_same_bits(y, expected, "y");
    run_backward(expected, now.gy);
    run_backward(y, other.gy);
    EXPECT_EQ(other.weight.fresh, pass.defer_weights && i == 0);
    run_deferred(pass);
    expect_same_bits(other.qkv.grad(), now.qkv.grad(), "qkv");
    expect_same_bits(other.residual.grad(), now.residual.grad(), "residual");
    expect_same_bits(other.weight.gradient, now.weight.gradient, "weight");
    expect_same_bits(other.bias.gradient, now.bias.gradient, "bias");
  }
}

TEST(Attention, DeferredAndRecomputedGradientsHaveTheSameBits) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double dropout : {0.0, 0.2}) {
      const Shape shape = {3, 70, 4, 2, 24, true, true, true, dropout};
      Pass deferred, selective, both;
      deferred.defer_weights = both.defer_weights = true;
      selective.recompute = both.recompute = Recompute::selective;
      for (const Pass& pass : {deferred, selective, both}) expect_same_gradients(shape, dtype, pass);
    }
  }
}

TEST(Attention, KeepsQkvTheHeadsOutputAndOneNumberPerQueryOrQkvAlone) {
  const std::int64_t qkv = 2 * 40 * 8 * 6, out = 2 * 40 * 4 * 6, lse = 2 * 40 * 4;
  for (const double dropout : {0.0, 0.2}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
      Case given({2, 40, 4, 2, 6, true, true, false, dropout}, at::kFloat);
      Pass pass;
      pass.recompute = recompute;
      const std::int64_t before = LiveBytes::instance().now();
      const at::Tensor y = given.run(pass);
      const auto kept = LiveBytes::instance().now() - before - static_cast<std::int64_t>(y.nbytes());
      EXPECT_EQ(kept, 4 * (recompute == Recompute::none ? qkv + out + lse : qkv)) << "dropout " << dropout;
    }
  }
}

TEST(Attention, DropoutIsTheSameForEveryMicrobatching) {
  at::NoGradGuard no_grad;
  Case given({4, 17, 4, 2, 6, false, true, false, 0.4}, at::kFloat);
  Pass whole = pass_at(9, 2, 6);
  const at::Tensor y = given.run(whole);
  for (std::int64_t row = 0; row < 4; ++row) {
    Pass part = pass_at(9, 2, 6 + row);
    const at::Tensor alone = attention(given.qkv.narrow(0, row, 1).clone(), given.weight, &given.bias, given.options,
                                       part, given.residual.narrow(0, row, 1));
    expect_close(alone, y.narrow(0, row, 1), 1e-6, 1e-5, "row");
  }
  Pass next = pass_at(9, 3, 6);
  EXPECT_GT((given.run(next) - y).abs().max().item<float>(), 0.1) << "another step drops others";
  Pass still;
  still.training = false;
  given.shape.dropout = given.options.dropout = 0;
  const at::Tensor undropped = given.run(whole);
  given.options.dropout = 0.4;
  expect_same_bits(given.run(still), undropped, "evaluation");
}

TEST(Attention, AQueryThatSeesNothingGivesZeroAndNoGradient) {
  Case given({1, 5, 2, 1, 4}, at::kFloat);
  given.options.key_mask = at::ones({1, 5}, at::kBool);
  given.options.key_mask[0].narrow(0, 0, 2).fill_(false);
  Pass pass;
  const at::Tensor y = given.run(pass);
  run_backward(y, given.gy);
  expect_close(y.narrow(1, 0, 2), (given.residual + given.bias.value).narrow(1, 0, 2), "y of hidden queries");
  EXPECT_TRUE(given.qkv.grad().isfinite().all().item<bool>());
  EXPECT_EQ(given.qkv.grad()[0].narrow(0, 0, 2).abs().max().item<float>(), 0);
}

TEST(Attention, NothingIsDoneForWhatNeedsNoGradient) {
  Case frozen(Shape(), at::kDouble);
  Pass pass;
  const Oracle expected = oracle(frozen, pass);
  frozen.weight = make_frozen(frozen.weight.value);
  run_backward(frozen.run(pass), frozen.gy);
  expect_close(frozen.qkv.grad(), expected.qkv, "gradient of qkv under a frozen weight");
  expect_close(frozen.bias.gradient, expected.bias, "gradient of bias");
  EXPECT_TRUE(frozen.weight.fresh);

  Case constant(Shape(), at::kDouble);
  constant.qkv.requires_grad_(false);
  run_backward(constant.run(pass), constant.gy);
  expect_close(constant.weight.gradient, expected.weight, "gradient of weight for a constant input");
  EXPECT_FALSE(constant.qkv.grad().defined());
}

TEST(Attention, WithoutGradModeThereIsNoGraphAndTheSameValue) {
  Case given({2, 9, 4, 2, 6, true, true, true, 0.2}, at::kFloat);
  Pass pass;
  const at::Tensor expected = given.run(pass);
  at::NoGradGuard no_grad;
  const at::Tensor y = given.run(pass);
  EXPECT_FALSE(y.requires_grad());
  expect_same_bits(y, expected, "y");
}

TEST(Attention, NaNInTheInputReachesTheOutput) {
  Case given({1, 6, 1, 1, 4}, at::kFloat);
  at::NoGradGuard no_grad;
  given.qkv[0][3][1].fill_(std::numeric_limits<float>::quiet_NaN());
  Pass pass;
  EXPECT_TRUE(given.run(pass)[0][3].isnan().any().item<bool>());
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  Pass pass;
  const auto message = [&](Case& given) -> std::string {
    try {
      given.run(pass);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  Case heads(Shape(), at::kFloat);
  heads.options.kv_heads = 3;
  EXPECT_NE(message(heads).find("kv_heads must divide heads"), std::string::npos) << message(heads);
  Case table(Shape(), at::kFloat);
  table.options.rotary = rotary_table(6, rotary_frequencies(6, 1e4), 1, at::kFloat);
  EXPECT_NE(message(table).find("rotary tables do not fit"), std::string::npos) << message(table);
  Case mask(Shape(), at::kFloat);
  mask.options.key_mask = at::ones({2, 6}, at::kBool);
  EXPECT_NE(message(mask).find("key_mask [2, 6]"), std::string::npos) << message(mask);
}

TEST(RotaryTable, HoldsAnglesRoundedOnce) {
  const RotaryTable table = rotary_table(50, rotary_frequencies(6, 500000.0), 0.75, at::kFloat);
  ASSERT_EQ(table.cos.sizes(), at::IntArrayRef({50, 3}));
  for (std::int64_t position : {0, 1, 49}) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(position) * std::pow(500000.0, -2.0 * static_cast<double>(i) / 6.0);
      EXPECT_FLOAT_EQ(table.cos[position][i].item<float>(), static_cast<float>(0.75 * std::cos(angle)));
      EXPECT_FLOAT_EQ(table.sin[position][i].item<float>(), static_cast<float>(0.75 * std::sin(angle)));
    }
  }
}

}  // namespace attention_test
}  // namespace orthant::nn
