#include "orthant/nn/embedding.h"

#include <ATen/Parallel.h>

#include "nn/oracle.h"
#include "orthant/nn/embedding_table.h"

namespace orthant::nn {
namespace embedding_test {

at::Tensor random_ids(at::IntArrayRef shape, std::int64_t entries, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randint(entries, shape, generator, at::dtype(at::kLong));
}

// Tokens, positions for all rows alike, and segments; ids repeat.
struct Case {
  Parameter tokens, positions, segments;
  at::Tensor ids, places, parts, gy;

  Case(std::int64_t rows, std::int64_t sequence, std::int64_t hidden, at::ScalarType dtype, at::ScalarType gradients)
      : tokens(make_parameter(random_tensor({11, hidden}, 1, dtype), gradients)),
        positions(make_parameter(random_tensor({8, hidden}, 2, dtype), gradients)),
        segments(make_parameter(random_tensor({2, hidden}, 3, dtype), gradients)),
        ids(random_ids({rows, sequence}, 11, 4)),
        places(at::arange(sequence, at::dtype(at::kLong))),
        parts(random_ids({rows, sequence}, 2, 5)),
        gy(random_tensor({rows, sequence, hidden}, 6, dtype)) {}

  std::vector<Lookup> lookups() { return {{ids, &tokens}, {places, &positions}, {parts, &segments}}; }
};

struct Oracle {
  at::Tensor y, tokens, positions, segments;  // all but y are gradients
};

Oracle oracle(const Case& given) {
  const auto leaf = [](const Parameter& p) { return p.value.detach().to(at::kDouble).clone().requires_grad_(); };
  const at::Tensor tokens = leaf(given.tokens), positions = leaf(given.positions), segments = leaf(given.segments);
  const at::Tensor y =
      at::embedding(tokens, given.ids) + at::embedding(positions, given.places) + at::embedding(segments, given.parts);
  run_backward(y, given.gy.to(at::kDouble));
  return {y, tokens.grad(), positions.grad(), segments.grad()};
}

void expect_oracle(const Case& given, const at::Tensor& y, double scale = 1) {
  const Oracle expected = oracle(given);
  const double bound = tolerance(given.gy.scalar_type());
  expect_close(y, expected.y, bound, bound, "y");
  expect_close(given.tokens.gradient, expected.tokens * scale, bound, bound, "gradient of tokens");
  expect_close(given.positions.gradient, expected.positions * scale, bound, bound, "gradient of positions");
  expect_close(given.segments.gradient, expected.segments * scale, bound, bound, "gradient of segments");
}

TEST(Embedding, EqualsAutogradInEveryDtypeAndShape) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, sequence, hidden] :
         {std::array<std::int64_t, 3>{3, 7, 5}, {1, 1, 1}, {0, 4, 6}, {5, 8, 300}}) {
      SCOPED_TRACE(testing::Message() << c10::toString(dtype) << " " << rows << " " << sequence << " " << hidden);
      Case given(rows, sequence, hidden, dtype, dtype == at::kBFloat16 ? at::kFloat : dtype);
      Pass pass;
      const at::Tensor y = embedding(given.lookups(), pass);
      EXPECT_EQ(y.scalar_type(), dtype);
      run_backward(y, given.gy);
      expect_oracle(given, y);
    }
  }
}

TEST(Embedding, GradientsAreThoseOfCentralDifferences) {
  Case given(2, 3, 4, at::kDouble, at::kDouble);
  Pass pass;
  run_backward(embedding(given.lookups(), pass), given.gy);
  const auto f = [&] { return embedding(given.lookups(), pass); };
  expect_numerical(given.tokens.gradient, f, given.tokens.value, given.gy, "tokens");
  expect_numerical(given.positions.gradient, f, given.positions.value, given.gy, "positions");
}

TEST(Embedding, FusedEqualsPlain) {
  Case given(4, 6, 33, at::kDouble, at::kDouble);
  const std::vector<TableRows> rows = {{given.ids, given.tokens.value.detach()},
                                       {given.places, given.positions.value.detach()}};
  expect_same_bits(fused::sum_table_rows(rows, 24), plain::sum_table_rows(rows, 24), "sum");
  const at::Tensor gy = given.gy.view({24, 33});
  for (const auto& [ids, entries] : {std::pair{given.ids, 11}, {given.places, 8}}) {
    const at::Tensor by_kernel = at::ones({entries, 33}, at::kDouble), by_aten = by_kernel.clone();
    fused::add_table_rows({ids, by_kernel}, gy);
    plain::add_table_rows({ids, by_aten}, gy);
    expect_close(by_kernel, by_aten, "gradient");
  }
}

TEST(Embedding, ASecondBackwardAddsToTheFirst) {
  Case given(3, 7, 5, at::kFloat, at::kFloat);
  Pass pass;
  at::Tensor y;
  for (int i = 0; i < 2; ++i) {
    y = embedding(given.lookups(), pass);
    run_backward(y, given.gy);
  }
  expect_oracle(given, y, 2);
}

TEST(Embedding, DeferredGradientsHaveTheSameBits) {
  Case now(30, 8, 40, at::kFloat, at::kFloat);
  Case later(30, 8, 40, at::kFloat, at::kFloat);
  Pass pass;
  Pass split;
  split.defer_weights = true;
  run_backward(embedding(now.lookups(), pass), now.gy);
  run_backward(embedding(later.lookups(), split), later.gy);
  EXPECT_TRUE(later.tokens.fresh);
  EXPECT_EQ(split.deferred.size(), 3);
  run_deferred(split);
  expect_same_bits(later.tokens.gradient, now.tokens.gradient, "tokens");
  expect_same_bits(later.positions.gradient, now.positions.gradient, "positions");
  expect_same_bits(later.segments.gradient, now.segments.gradient, "segments");
}

TEST(Embedding, AFrozenTableIsLeftAlone) {
  Case given(3, 7, 5, at::kDouble, at::kDouble);
  const Oracle expected = oracle(given);
  given.tokens = make_frozen(given.tokens.value);
  Pass pass;
  const at::Tensor y = embedding(given.lookups(), pass);
  run_backward(y, given.gy);
  expect_close(y, expected.y, "y");
  expect_close(given.positions.gradient, expected.positions, "gradient of positions");
  EXPECT_TRUE(given.tokens.fresh);
}

TEST(Embedding, ReadsStridedIdsAndGradients) {
  Case given(4, 6, 5, at::kDouble, at::kDouble);
  Case strided(4, 6, 5, at::kDouble, at::kDouble);
  strided.ids = given.ids.t().contiguous().t();
  ASSERT_FALSE(strided.ids.is_contiguous());
  Pass pass;
  const at::Tensor y = embedding(given.lookups(), pass);
  const at::Tensor again = embedding(strided.lookups(), pass);
  expect_same_bits(again, y, "y");
  run_backward(y, given.gy);
  run_backward(again, given.gy.transpose(0, 2).contiguous().transpose(0, 2));
  expect_same_bits(strided.tokens.gradient, given.tokens.gradient, "tokens");
}

TEST(Embedding, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> gradients;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    Case given(64, 8, 640, at::kFloat, at::kFloat);
    Pass pass;
    run_backward(embedding(given.lookups(), pass), given.gy);
    gradients.push_back(given.tokens.gradient);
  }
  at::set_num_threads(threads);
  expect_same_bits(gradients[1], gradients[0], "tokens");
}

TEST(Embedding, WithoutGradientsGivesTheSame) {
  Case given(3, 7, 5, at::kFloat, at::kFloat);
  Pass pass;
  const at::Tensor recorded = embedding(given.lookups(), pass);
  at::NoGradGuard no_grad;
  const at::Tensor y = embedding(given.lookups(), pass);
  EXPECT_FALSE(y.requires_grad());
  expect_same_bits(y, recorded, "y");
}

}  // namespace embedding_test
}  // namespace orthant::nn
