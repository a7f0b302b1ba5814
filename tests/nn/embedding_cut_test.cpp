// Tables cut along their entries over tp, and cut tokens, against one rank.
#include <array>

#include "nn/oracle.h"
#include "nn/thread_axis.h"
#include "orthant/base/error.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/embedding_table.h"

namespace orthant::nn {
namespace embedding_cut_test {

constexpr double kBound = 1e-12;
constexpr std::int64_t kEntries[] = {11, 8, 2};

at::Tensor random_ids(at::IntArrayRef shape, std::int64_t entries, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randint(entries, shape, generator, at::dtype(at::kLong));
}

constexpr std::array<std::array<std::string_view, 2>, 3> kNames = {
    {{"embed", "embed.token"}, {"embed", "embed.position"}, {"embed", "embed.segment"}}};

// Token, position (for all rows alike) and segment tables, on one rank or one rank's part of them.
struct Case {
  std::int64_t rows, sequence, hidden;
  at::ScalarType dtype;
  std::vector<Parameter> tables;
  std::vector<at::Tensor> ids;
  at::Tensor gy;

  Case(std::int64_t num_rows, std::int64_t length, at::ScalarType type = at::kDouble, std::int64_t width = 5)
      : rows(num_rows), sequence(length), hidden(width), dtype(type) {
    for (std::uint64_t k = 0; k < 3; ++k) {
      tables.push_back(make_parameter(random_tensor({kEntries[k], hidden}, k + 1, dtype)));
    }
    ids = {random_ids({rows, sequence}, 11, 4), at::arange(sequence, at::dtype(at::kLong)),
           random_ids({rows, sequence}, 2, 5)};
    gy = random_tensor({rows, sequence, hidden}, 6, dtype);
  }

  // Tables whose bit is set in `which` keep this rank's entries alone.
  void cut(unsigned which, const TensorAxis& axis) {
    for (std::size_t k = 0; k < tables.size(); ++k) {
      if ((which >> k & 1) == 0) continue;
      const Range own = axis.part(kEntries[k]);
      tables[k] = make_parameter(tables[k].value.detach().narrow(0, own.begin, own.size()));
      tables[k].cut = {.dim = 0, .first = own.begin};
      tables[k].subject = kNames[k];
    }
  }

  std::vector<Lookup> lookups() {
    std::vector<Lookup> all;
    for (std::size_t k = 0; k < tables.size(); ++k) all.push_back({ids[k], &tables[k], kEntries[k]});
    return all;
  }

  Pass pass(TensorAxis* axis) const {
    Pass made;
    made.tensor = axis;
    made.rows = rows;
    made.sequence = sequence;
    return made;
  }
};

at::Tensor own_part(const at::Tensor& whole, const Pass& pass) {
  if (!pass.cuts_tokens()) return whole;
  const Range own = pass.own_tokens();
  return whole.reshape({pass.num_tokens(), whole.size(-1)}).narrow(0, own.begin, own.size());
}

// One rank's outputs and gradients against those of `reference`, which ran on one rank.
void expect_reference(Case& given, const Case& reference, const at::Tensor& expected, unsigned which,
                      ThreadAxis& axis) {
  SCOPED_TRACE(testing::Message() << "rank " << axis.coordinate() << " of " << axis.degree() << ", tables " << which
                                  << (axis.sequence_parallel() ? ", cut tokens" : "") << ", " << given.rows << " x "
                                  << given.sequence << " " << c10::toString(given.dtype));
  given.cut(which, axis);
  Pass pass = given.pass(&axis);
  const at::Tensor y = embedding(given.lookups(), pass);
  if ((which & (which - 1)) == 0) {
    ASSERT_EQ(y.sizes(), own_part(expected, pass).sizes());
    expect_same_bits(y, own_part(expected, pass), "y");
  } else {
    expect_close(y, own_part(expected, pass), kBound, kBound, "y");
  }
  run_backward(y, own_part(given.gy, pass).contiguous());
  for (std::size_t k = 0; k < given.tables.size(); ++k) {
    const Parameter& table = given.tables[k];
    EXPECT_FALSE(table.fresh);
    at::Tensor gradient = table.gradient.clone();
    at::Tensor whole = reference.tables[k].gradient;
    if (table.cut.dim == 0) {
      whole = whole.narrow(0, table.cut.first, gradient.size(0));
    } else if (pass.cuts_tokens()) {
      axis.sum(gradient, {})->wait();  // partial: of own tokens alone
    }
    const double bound = given.dtype == at::kDouble ? kBound : tolerance(given.dtype);
    expect_close(gradient, whole, bound, bound, "gradient of table " + std::to_string(k));
  }
}

TEST(CutEmbedding, EqualsOneRank) {
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
    for (const auto& [rows, sequence] : {std::pair<std::int64_t, std::int64_t>{3, 7}, {1, 1}, {2, 5}, {0, 4}}) {
      Case reference(rows, sequence, dtype);
      Pass one;
      const at::Tensor expected = embedding(reference.lookups(), one);
      run_backward(expected, reference.gy);
      for (const unsigned which : {0U, 1U, 2U, 3U, 5U, 7U}) {
        if (dtype != at::kDouble && (which & (which - 1)) != 0) continue;  // sums are regrouped: other bits
        for (const int degree : {1, 2, 3, 4}) {
          for (const bool cut_tokens : {false, true}) {
            run_axis(degree, {.sequence_parallel = cut_tokens}, [&](ThreadAxis& axis) {
              Case given(rows, sequence, dtype);
              expect_reference(given, reference, expected.detach(), which, axis);
            });
          }
        }
      }
    }
  }
}

TEST(CutEmbedding, ExchangesOneSumAndOneGather) {
  const auto kinds = [](unsigned which, bool cut_tokens, bool frozen) {
    std::string kinds;
    run_axis(3, {.sequence_parallel = cut_tokens}, [&](ThreadAxis& axis) {
      Case given(3, 7);
      given.cut(which, axis);
      if (frozen) given.tables[0].gradient.reset();
      Pass pass = given.pass(&axis);
      run_backward(embedding(given.lookups(), pass), own_part(given.gy, pass).contiguous());
      if (axis.coordinate() != 1) return;
      for (const ThreadAxis::Call& call : axis.calls()) {
        kinds += call.kind + " ";
        EXPECT_EQ(call.elements, 3 * 7 * 5);
      }
    });
    return kinds;
  };
  EXPECT_EQ(kinds(0, false, false), "");
  EXPECT_EQ(kinds(0, true, false), "");
  EXPECT_EQ(kinds(1, false, false), "sum ");
  EXPECT_EQ(kinds(3, false, false), "sum ");
  EXPECT_EQ(kinds(1, true, false), "scatter gather ");
  EXPECT_EQ(kinds(1, true, true), "scatter ") << "a frozen table needs no gradient";
}

TEST(CutEmbedding, DeferredGradientsHaveTheSameBitsAndExchangeNothing) {
  run_axis(3, {.sequence_parallel = true}, [](ThreadAxis& axis) {
    Case now(3, 7), later(3, 7);
    for (Case* given : {&now, &later}) {
      given->cut(1, axis);
      Pass pass = given->pass(&axis);
      pass.defer_weights = given == &later;
      run_backward(embedding(given->lookups(), pass), own_part(given->gy, pass).contiguous());
      EXPECT_EQ(pass.deferred.size(), pass.defer_weights ? 3 : 0);
      const std::size_t calls = axis.calls().size();
      run_deferred(pass);
      EXPECT_EQ(axis.calls().size(), calls);
    }
    for (std::size_t k = 0; k < 3; ++k) {
      expect_same_bits(later.tables[k].gradient, now.tables[k].gradient, "table " + std::to_string(k));
    }
  });
}

TEST(CutEmbedding, NamesTheTablesOfItsSum) {
  for (const bool cut_tokens : {false, true}) {
    run_axis(2, {.sequence_parallel = cut_tokens}, [&](ThreadAxis& axis) {
      Case given(3, 7);
      given.cut(3, axis);
      Pass pass = given.pass(&axis);
      embedding(given.lookups(), pass);
      ASSERT_EQ(axis.calls().size(), 1U);
      EXPECT_EQ(axis.calls()[0].subject, (std::vector<std::string>{"embed", "embed.token", "embed", "embed.position"}));
    });
  }
}

TEST(CutEmbedding, WithoutItsSumTheResultDiffers) {
  Case reference(3, 7);
  Pass one;
  const at::Tensor expected = embedding(reference.lookups(), one).detach();
  for (const bool cut_tokens : {false, true}) {
    run_axis(2, {.sequence_parallel = cut_tokens}, [&](ThreadAxis& axis) {
      Case given(3, 7);
      given.cut(3, axis);
      axis.leave_out("embed.position");
      Pass pass = given.pass(&axis);
      const at::Tensor y = embedding(given.lookups(), pass);
      EXPECT_GT((y.detach() - own_part(expected, pass)).abs().max().item<double>(), 0.1);
    });
  }
}

TEST(CutEmbedding, EveryRankRefusesAnIdOutsideOfTheWholeTable) {
  for (const auto& [id, text] : {std::pair{11, "id 11 of a table with 11 entries"}, {-1, "id -1 of a table with 11"}}) {
    run_axis(3, {}, [&](ThreadAxis& axis) {
      Case given(3, 7);
      given.cut(1, axis);
      given.ids[0][1][2].fill_(id);
      Pass pass = given.pass(&axis);
      try {
        embedding(given.lookups(), pass);
        ADD_FAILURE() << "not refused on rank " << axis.coordinate();
      } catch (const DataError& error) {
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("vocab_size"), std::string::npos) << error.what();
      }
    });
  }
}

TEST(CutEmbedding, IdsThatDoNotFitThePassAreRefused) {
  run_axis(2, {.sequence_parallel = true}, [](ThreadAxis& axis) {
    Case given(3, 7);
    Pass pass = given.pass(&axis);
    pass.rows = 2;
    try {
      embedding(given.lookups(), pass);
      ADD_FAILURE() << "not refused";
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find("ids of shape [3, 7] in a pass of 2 rows of 7"), std::string::npos)
          << error.what();
    }
  });
}

TEST(CutEmbedding, FusedEqualsPlain) {
  const Case given(4, 6, at::kDouble, 33);
  const at::Tensor gy = given.gy.view({24, 33});
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 7}, {3, 0}, {10, 1}}) {
    SCOPED_TRACE(testing::Message() << count << " entries from " << first);
    const TensorCut cut = {.dim = 0, .first = first};
    const at::Tensor part = given.tables[0].value.detach().narrow(0, first, count);
    const std::vector<TableRows> rows = {{given.ids[1], given.tables[1].value.detach()},
                                         {given.ids[0], part, cut},
                                         {given.ids[1], given.tables[1].value.detach().narrow(0, 2, 2), {0, 2}}};
    expect_same_bits(fused::sum_table_rows(rows, 24), plain::sum_table_rows(rows, 24), "sum");
    for (const at::Tensor& ids : {given.ids[0], given.ids[1]}) {
      const at::Tensor by_kernel = at::ones({count, 33}, at::kDouble), by_aten = by_kernel.clone();
      fused::add_table_rows({ids, by_kernel, cut}, gy);
      plain::add_table_rows({ids, by_aten, cut}, gy);
      expect_close(by_kernel, by_aten, kBound, kBound, "gradient");
    }
  }
}

}  // namespace embedding_cut_test
}  // namespace orthant::nn
