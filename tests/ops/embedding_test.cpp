// Rows of tables: kernels against ATen's functions, whole tables and parts of them, and ids that are refused.
#include "orthant/ops/embedding/embedding.h"

#include "base/error_text.h"
#include "ops/oracle.h"
#include "ops/thread_axis.h"
#include "orthant/ops/embedding/embedding_table.h"

namespace orthant::nn {
namespace embedding_test {

constexpr double kBound = 1e-12;

at::Tensor random_ids(at::IntArrayRef shape, std::int64_t entries, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randint(entries, shape, generator, at::dtype(at::kLong));
}

// Tokens, and positions for all rows alike; ids repeat.
struct Case {
  std::vector<at::Tensor> tables = {random_tensor({11, 33}, 1), random_tensor({8, 33}, 2)};
  std::vector<at::Tensor> ids = {random_ids({4, 6}, 11, 4), at::arange(6, at::dtype(at::kLong))};
  at::Tensor gy = random_tensor({24, 33}, 6);
};

TEST(EmbeddingTable, FusedEqualsPlain) {
  const Case given;
  const std::vector<TableRows> rows = {{given.ids[0], given.tables[0]}, {given.ids[1], given.tables[1]}};
  expect_same_bits(fused::sum_table_rows(rows, 24), plain::sum_table_rows(rows, 24), "sum");
  for (const auto& [ids, entries] : {std::pair{given.ids[0], 11}, {given.ids[1], 8}}) {
    const at::Tensor by_kernel = at::ones({entries, 33}, at::kDouble), by_aten = by_kernel.clone();
    fused::add_table_rows({ids, by_kernel}, given.gy);
    plain::add_table_rows({ids, by_aten}, given.gy);
    expect_close(by_kernel, by_aten, "gradient");
  }
}

TEST(EmbeddingTable, FusedPartsEqualPlainOnes) {
  const Case given;
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 7}, {3, 0}, {10, 1}}) {
    SCOPED_TRACE(testing::Message() << count << " entries from " << first);
    const TensorCut cut = {.dim = 0, .first = first};
    const at::Tensor part = given.tables[0].narrow(0, first, count);
    const std::vector<TableRows> rows = {{given.ids[1], given.tables[1]},
                                         {given.ids[0], part, cut},
                                         {given.ids[1], given.tables[1].narrow(0, 2, 2), {0, 2}}};
    expect_same_bits(fused::sum_table_rows(rows, 24), plain::sum_table_rows(rows, 24), "sum");
    for (const at::Tensor& ids : given.ids) {
      const at::Tensor by_kernel = at::ones({count, 33}, at::kDouble), by_aten = by_kernel.clone();
      fused::add_table_rows({ids, by_kernel, cut}, given.gy);
      plain::add_table_rows({ids, by_aten, cut}, given.gy);
      expect_close(by_kernel, by_aten, kBound, kBound, "gradient");
    }
  }
}

TEST(Embedding, ReadsStridedIds) {
  const Case given;
  Parameter table = make_parameter(given.tables[0]), strided = make_parameter(given.tables[0]);
  const at::Tensor turned = given.ids[0].t().contiguous().t();
  ASSERT_FALSE(turned.is_contiguous());
  at::NoGradGuard no_grad;
  const Pass pass;
  expect_same_bits(table_sum({{turned, &strided}}, pass), table_sum({{given.ids[0], &table}}, pass), "sum");
  add_table_gradient(table, looked_up_ids({given.ids[0], &table}, pass), given.gy);
  add_table_gradient(strided, looked_up_ids({turned, &strided}, pass), given.gy);
  expect_same_bits(strided.gradient, table.gradient, "gradient");
}

TEST(Embedding, IdsThatDoNotFitThePassAreRefused) {
  run_axis(2, {.sequence_parallel = true}, [](ThreadAxis& axis) {
    const Case given;
    Parameter table = make_parameter(given.tables[0]);
    const Pass pass{.tensor = &axis, .rows = 2, .sequence = 6};
    const auto text = error_text<InternalError>([&] { table_sum({{given.ids[0], &table}}, pass); });
    EXPECT_NE(text.find("ids of shape [4, 6] in a pass of 2 rows of 6"), std::string::npos) << text;
    const auto none = error_text<InternalError>([&] { table_sum({{given.ids[1], &table}}, pass); });
    EXPECT_NE(none.find("no lookup has ids of shape [rows, sequence]"), std::string::npos) << none;
  });
}

}  // namespace embedding_test
}  // namespace orthant::nn
