// Sums of table rows by programs, with tables cut along their entries over tp and cut tokens.
#include <ATen/Parallel.h>

#include "base/error_text.h"
#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::embedding_test {

constexpr std::int64_t kEntries[] = {11, 8, 2};
const std::vector<std::string> kTables = {"token", "position", "segment"};

at::Tensor random_ids(at::IntArrayRef shape, std::int64_t entries, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randint(entries, shape, generator, at::dtype(at::kLong));
}

// Tokens, positions for all rows alike, and segments; ids repeat. Tables whose bit is set in `cut` are cut over tp.
UnitCase embedding_case(std::int64_t rows, std::int64_t sequence, std::int64_t hidden, unsigned cut = 0) {
  UnitCase given(rows, sequence);
  std::vector<ops::Lookup> lookups;
  for (unsigned k = 0; k < 3; ++k) {
    const std::optional<Split> tp = (cut >> k & 1U) != 0 ? std::optional(Split{.dim = 0}) : std::nullopt;
    ops::Lookup lookup{.table = given.parameter(kTables[k], random_tensor({kEntries[k], hidden}, k + 1), tp),
                       .entries = kEntries[k]};
    if (k == 1) {
      lookup.by = ops::Lookup::By::positions;
    } else {
      lookup.ids = given.field(kTables[k] + "_ids", random_ids({rows, sequence}, kEntries[k], 4 + k));
    }
    lookups.push_back(lookup);
  }
  given.output(ops::embedding(given.recorder, lookups, hidden), random_tensor({rows, sequence, hidden}, 6));
  return given;
}

at::Tensor formula(const Named& t, const nn::Pass& /*pass*/) {
  const at::Tensor& ids = t.at("token_ids");
  return at::embedding(t.at("token"), ids) + at::embedding(t.at("position"), at::arange(ids.size(1), at::kLong)) +
         at::embedding(t.at("segment"), t.at("segment_ids"));
}

TEST(Embedding, EqualsAutogradInEveryDtypeAndShape) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, sequence, hidden] :
         {std::array<std::int64_t, 3>{3, 7, 5}, {1, 1, 1}, {0, 4, 6}, {5, 8, 300}, {30, 8, 40}}) {
      SCOPED_TRACE(testing::Message() << rows << " " << sequence << " " << hidden);
      expect_formula(embedding_case(rows, sequence, hidden), formula, dtype, nn::tolerance(dtype));
    }
  }
}

TEST(Embedding, GradientsAreThoseOfCentralDifferences) {
  expect_central_differences(embedding_case(2, 3, 4));
}

TEST(Embedding, CountsPositionsFromTheBeginningOfADocument) {
  UnitCase given(2, 4);
  const Value ids = given.field("ids", random_ids({2, 4}, 11, 1));
  const Value starts = given.field("starts", at::tensor({0, 0, 2, 2, 0, 1, 1, 1}, at::kLong).view({2, 4}));
  const Value sum = ops::embedding(given.recorder,
                                   {{.ids = ids, .table = given.parameter("token", random_tensor({11, 5}, 2))},
                                    {.ids = starts,
                                     .by = ops::Lookup::By::document_positions,
                                     .table = given.parameter("position", random_tensor({4, 5}, 3))}},
                                   5);
  given.output(sum, random_tensor({2, 4, 5}, 4));
  const Formula expected = [](const Named& t, const nn::Pass& /*pass*/) {
    const at::Tensor positions = at::tensor({0, 1, 0, 1, 0, 0, 1, 2}, at::kLong).view({2, 4});
    return at::embedding(t.at("token"), t.at("ids")) + at::embedding(t.at("position"), positions);
  };
  expect_formula(given, expected, at::kDouble, nn::tolerance(at::kDouble));
}

// RoBERTa's: padding has position 1, the first word 2.
TEST(Embedding, CountsPositionsPastPadding) {
  UnitCase given(2, 4);
  const Value ids = given.field("ids", at::tensor({5, 6, 1, 1, 1, 7, 1, 8}, at::kLong).view({2, 4}));
  const ops::Lookup lookup{.ids = ids,
                           .by = ops::Lookup::By::counted_positions,
                           .table = given.parameter("table", random_tensor({8, 3}, 1)),
                           .entries = 8,
                           .padding = 1,
                           .first = 2};
  given.output(ops::embedding(given.recorder, {lookup}, 3), random_tensor({2, 4, 3}, 2));
  const Formula counted = [](const Named& t, const nn::Pass&) {
    return at::embedding(t.at("table"), at::tensor({2, 3, 1, 1, 1, 2, 1, 3}, at::kLong).view({2, 4}));
  };
  expect_formula(given, counted, at::kDouble);
}

TEST(Embedding, KeepsIdsAlone) {
  const UnitCase given = embedding_case(3, 7, 5);
  const Program program = UnitRun(given, {}, at::kFloat).program();
  EXPECT_EQ(program.kept, program.inputs) << to_string(program, UnitSizes{});
}

TEST(Embedding, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<Result> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    results.push_back(UnitRun(embedding_case(64, 8, 640), {}, at::kFloat).run());
  }
  at::set_num_threads(threads);
  expect_same_result(results[1], results[0], "two threads");
}

TEST(CutEmbedding, EqualsOneRank) {
  for (const auto& [rows, sequence] : {std::pair<std::int64_t, std::int64_t>{3, 7}, {1, 1}, {2, 5}, {0, 4}}) {
    for (const unsigned cut : {0U, 1U, 2U, 3U, 5U, 7U}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << sequence << ", tables " << cut);
      // Two segments cannot be cut among more than two ranks.
      const std::vector<int> degrees = (cut & 4U) != 0 ? std::vector<int>{2} : std::vector<int>{2, 3, 4};
      expect_axis(embedding_case(rows, sequence, 5, cut), degrees, at::kDouble, 1e-12);
    }
  }
}

// With one cut table each token's sum is made on one rank, in the order and with the bits of one rank.
TEST(CutEmbedding, OfOneTableHasTheBitsOfOneRank) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const unsigned cut : {0U, 1U, 2U}) {
      const UnitCase given = embedding_case(3, 7, 5, cut);
      const at::Tensor whole = UnitRun(given, {}, dtype).run().y;
      for (const int degree : {2, 3, 4}) {
        for (const auto& sharing : kSharings) {
          run_axis(degree, {.sequence_parallel = sharing.sequence_parallel}, [&](ThreadAxis& axis) {
            UnitRun run(given, {}, dtype, &axis);
            const Result part = run.run();
            expect_same_bits(part.y, run.part(given.output(), whole), "y");
          });
        }
      }
    }
  }
}

TEST(CutEmbedding, ExchangesOneSumAndOneGather) {
  const auto kinds = [](unsigned cut, bool cut_tokens, const Way& way = {}) {
    const Calls calls = calls_of(embedding_case(3, 7, 5, cut), {.sequence_parallel = cut_tokens}, way);
    for (const auto& call : calls.all) EXPECT_EQ(call.elements, 3 * 7 * 5);
    return calls.kinds;
  };
  EXPECT_EQ(kinds(0, false), "");
  EXPECT_EQ(kinds(0, true), "");
  EXPECT_EQ(kinds(1, false), "sum ");
  EXPECT_EQ(kinds(3, false), "sum ");
  EXPECT_EQ(kinds(1, true), "scatter gather ");
  EXPECT_EQ(kinds(1, true, {.split = true}), "scatter gather ");
  EXPECT_EQ(kinds(1, true, {.frozen = {"token"}}), "scatter ") << "a frozen table needs no gradient";
}

// The gather is B's: W may run when other ranks are elsewhere.
TEST(CutEmbedding, WExchangesNothing) {
  run_axis(3, {.sequence_parallel = true}, [](ThreadAxis& axis) {
    const UnitCase given = embedding_case(3, 7, 5, 1);
    const Program program = UnitRun(given, {.split = true}, at::kFloat, &axis).program();
    for (const auto& operation : program.weight_part)
      EXPECT_FALSE(operation.exchange) << to_string(program, UnitSizes{});
  });
}

TEST(CutEmbedding, NamesTheTablesOfItsSum) {
  for (const bool cut_tokens : {false, true}) {
    const Calls calls = calls_of(embedding_case(3, 7, 5, 3), {.sequence_parallel = cut_tokens});
    ASSERT_FALSE(calls.all.empty());
    EXPECT_EQ(calls.all[0].subject, (std::vector<std::string>{"unit", "unit.token", "unit.position"}));
  }
}

TEST(CutEmbedding, WithoutItsSumTheResultDiffers) {
  const UnitCase given = embedding_case(3, 7, 5, 3);
  const at::Tensor whole = UnitRun(given, {}, at::kDouble).run().y;
  for (const bool cut_tokens : {false, true}) {
    run_axis(2, {.sequence_parallel = cut_tokens}, [&](ThreadAxis& axis) {
      axis.leave_out("unit.position");
      UnitRun run(given, {}, at::kDouble, &axis);
      EXPECT_GT((run.run().y - run.part(given.output(), whole)).abs().max().item<double>(), 0.1);
    });
  }
}

TEST(CutEmbedding, EveryRankRefusesAnIdOutsideOfTheWholeTable) {
  for (const auto& [id, text] : {std::pair{11, "id 11 of a table with 11 entries"}, {-1, "id -1 of a table with 11"}}) {
    run_axis(3, {}, [&](ThreadAxis& axis) {
      const UnitCase given = embedding_case(3, 7, 5, 1);
      given.inputs()[0].value[1][2].fill_(id);
      const auto message = error_text<DataError>([&] { UnitRun(given, {}, at::kDouble, &axis).run(); });
      EXPECT_NE(message.find(text), std::string::npos) << message;
      EXPECT_NE(message.find("vocab_size"), std::string::npos) << message;
    });
  }
}

}  // namespace orthant::test::embedding_test
