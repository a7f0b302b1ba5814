// Attention from the joined projection to the layer's output, by programs: rotary, scores, softmax, dropout, weighted
// sum, output projection, residual.
#include "interpret/unit_checks.h"
#include "ops/attention_case.h"
#include "orthant/models/rope.h"
#include "orthant/ops/functions.h"

namespace orthant::test::attention_test {

using nn::AttentionShape;

constexpr std::int64_t kHidden = 8;
constexpr double kTheta = 1e4;

UnitCase attention_case(const AttentionShape& s, bool bias_and_residual = true) {
  UnitCase given(s.rows, s.sequence);
  const Value x = given.input("x", random_tensor({s.rows, s.sequence, kHidden}, 1));
  const Value mask = s.masked ? given.field("mask", nn::key_mask_of(s)) : Value{};
  const Value documents = s.packed ? given.field("documents", nn::document_starts_of(s)) : Value{};
  const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.head_size;
  Value qkv = ops::linear(
      given.recorder, x,
      {.weight = given.parameter("qkv", random_tensor({width, kHidden}, 2) / std::sqrt(kHidden)), .out = width});
  const ops::Heads heads{s.heads, s.kv_heads, s.head_size};
  if (s.rotary) {
    qkv = ops::rotary(given.recorder, qkv, heads,
                      {.theta = kTheta, .max_positions = 512, .scaling = as_numbers(RopeScaling{})}, documents);
  }
  const Value attended = ops::attention(
      given.recorder, qkv, mask, heads,
      {.causal = s.causal, .dropout = s.dropout, .site = "probabilities", .window = s.window}, documents);
  ops::LinearParameters out{.weight = given.parameter("out", random_tensor({5, s.heads * s.head_size}, 4)), .out = 5};
  if (bias_and_residual) out.bias = given.parameter("bias", random_tensor({5}, 5));
  Value y = ops::linear(given.recorder, attended, out);
  if (bias_and_residual) {
    y = ops::add(given.recorder, y, given.input("residual", random_tensor({s.rows, s.sequence, 5}, 6)));
  }
  given.output(y, random_tensor({s.rows, s.sequence, 5}, 3));
  return given;
}

// 0 or 1 / (1 - p) for each (row, head, query, key), from the stream's definition.
at::Tensor stream_factors(const AttentionShape& s, const nn::Pass& pass) {
  at::Tensor factors = at::ones({s.rows, s.heads, s.sequence, s.sequence}, at::kDouble);
  if (s.dropout == 0 || !pass.training) return factors;
  const RandomStream stream = pass.dropout_stream(std::string(kUnit) + ".probabilities");
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

// x [rows, heads, sequence, size].
at::Tensor rotated(const at::Tensor& x, const AttentionShape& s) {
  const at::Tensor inverse = at::pow(kTheta, -at::arange(0, s.head_size, 2, at::kDouble) / s.head_size);
  at::Tensor position = at::arange(s.sequence, at::kDouble).expand({s.rows, 1, s.sequence});
  if (s.packed) position = position - nn::document_starts_of(s).unsqueeze(1);
  const at::Tensor angle = position.unsqueeze(-1) * inverse;
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * angle.cos() - halves[1] * angle.sin(), halves[1] * angle.cos() + halves[0] * angle.sin()},
                 -1);
}

Formula formula_of(const AttentionShape& s) {
  return [s](const Named& t, const nn::Pass& pass) {
    const auto parts = at::matmul(t.at("x"), t.at("qkv").t())
                           .view({s.rows, s.sequence, s.heads + 2 * s.kv_heads, s.head_size})
                           .transpose(1, 2)
                           .split_with_sizes({s.heads, s.kv_heads, s.kv_heads}, 1);
    const auto spread = [&](const at::Tensor& x) { return x.repeat_interleave(s.heads / s.kv_heads, 1); };
    const at::Tensor q = s.rotary ? rotated(parts[0], s) : parts[0];
    const at::Tensor k = spread(s.rotary ? rotated(parts[1], s) : parts[1]);
    at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(s.head_size));
    const double hidden = -std::numeric_limits<double>::infinity();
    if (s.causal) scores = scores.masked_fill(at::ones({s.sequence, s.sequence}, at::kBool).triu(1), hidden);
    if (s.window > 0) {
      const at::Tensor query = at::arange(s.sequence).unsqueeze(1), key = at::arange(s.sequence).unsqueeze(0);
      scores = scores.masked_fill(key <= query - s.window, hidden);
    }
    if (s.packed) {
      const at::Tensor& starts = t.at("documents");
      scores = scores.masked_fill(starts.unsqueeze(2).ne(starts.unsqueeze(1)).unsqueeze(1), hidden);
    }
    if (s.masked) scores = scores.masked_fill(t.at("mask").logical_not().unsqueeze(1).unsqueeze(1), hidden);
    // Queries that see nothing take part with probabilities of 0.
    const at::Tensor seen = scores.isneginf().logical_not();
    scores = scores.masked_fill(seen.any(-1, true).logical_not(), 0);
    const at::Tensor p = at::softmax(scores, -1) * seen * stream_factors(s, pass);
    const at::Tensor out = at::matmul(p, spread(parts[2])).transpose(1, 2).flatten(2);
    const at::Tensor y = at::matmul(out, t.at("out").t());
    return t.contains("bias") ? y + t.at("bias") + t.at("residual") : y;
  };
}

TEST(Attention, EqualsAutogradInEveryDtypeAndShape) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const AttentionShape& shape : nn::kAttentionShapes) {
      SCOPED_TRACE(nn::text(shape));
      expect_formula(attention_case(shape), formula_of(shape), dtype);
    }
  }
}

TEST(Attention, OfSeveralBlocksEqualsAutograd) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double dropout : {0.0, 0.2}) {
      const AttentionShape shape{3, 70, 4, 2, 24, true, true, true, dropout};
      expect_formula(attention_case(shape), formula_of(shape), dtype);
    }
  }
}

TEST(Attention, WithoutBiasOrResidual) {
  const AttentionShape shape;
  expect_formula(attention_case(shape, /*bias_and_residual=*/false), formula_of(shape), at::kDouble);
}

TEST(Attention, OfNoRowsIsEmpty) {
  const UnitCase given = attention_case({0, 4, 2, 1, 4});
  const Result result = UnitRun(given, {}, at::kFloat).run();
  EXPECT_EQ(result.y.sizes(), at::IntArrayRef({0, 4, 5}));
  for (const char* name : {"qkv", "out", "bias"}) {
    EXPECT_EQ(result.gradients.at(name).abs().max().item<float>(), 0) << name;
  }
}

TEST(Attention, GradientsAreThoseOfCentralDifferences) {
  for (const double dropout : {0.0, 0.3}) {
    expect_central_differences(attention_case({2, 5, 4, 2, 4, true, true, true, dropout}));
  }
}

TEST(Attention, KeepsQkvTheHeadsOutputAndOneNumberPerQueryOrQkvAlone) {
  for (const double dropout : {0.0, 0.2}) {
    const UnitCase given = attention_case({2, 40, 4, 2, 6, true, true, false, dropout});
    const auto kept = [&](Recompute mode) { return UnitRun(given, {.remake = remake_of(mode)}, at::kFloat).kept(); };
    using Names = std::vector<std::string>;
    EXPECT_EQ(kept(Recompute::none), (Names{"attended", "bits", "lse", "turned"}));
    EXPECT_EQ(kept(Recompute::selective), (Names{"turned"}));
    EXPECT_EQ(kept(Recompute::full), Names{});
  }
}

TEST(Attention, DropoutIsTheSameForEveryMicrobatching) {
  const AttentionShape shape{4, 17, 4, 2, 6, false, true, false, 0.4};
  const UnitCase given = attention_case(shape);
  const at::Tensor y = UnitRun(given, {}, at::kFloat).run(pass_at(6)).y;
  AttentionShape one = shape;
  one.rows = 1;
  for (std::int64_t row = 0; row < 4; ++row) {
    UnitCase alone = attention_case(one);
    for (std::size_t i = 0; i < 2; ++i) alone.inputs()[i].value.copy_(given.inputs()[i].value.narrow(0, row, 1));
    expect_close(UnitRun(alone, {}, at::kFloat).run(pass_at(6 + row)).y, y.narrow(0, row, 1), 1e-6, 1e-5, "row");
  }
  nn::Pass next = pass_at(6);
  ++next.step;
  EXPECT_GT((UnitRun(given, {}, at::kFloat).run(next).y - y).abs().max().item<float>(), 0.1) << "another step";
}

TEST(Attention, NaNInTheInputReachesTheOutput) {
  UnitCase given = attention_case({1, 6, 1, 1, 4});
  given.inputs()[0].value[0][3][1].fill_(std::numeric_limits<double>::quiet_NaN());
  UnitRun run(given, {.evaluate = true}, at::kFloat);
  Frame frame;
  EXPECT_TRUE(run.forward(frame, pass_at(0), /*check=*/false)[0][3].isnan().any().item<bool>());
}

}  // namespace orthant::test::attention_test
