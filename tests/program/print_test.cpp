#include "orthant/program/print.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "program/compiled.h"

namespace orthant::print_test {

using Json = nlohmann::ordered_json;

const UnitSizes kSizes = {.rows = 2, .sequence = 3, .degree = 2};

TEST(Print, AHeadUnderSequenceParallelism) {
  const Program program = test::program_of(test::over(test::llama(), test::kSp), "head");
  EXPECT_EQ(
      to_string(program, kSizes),
      "in hidden [tokens/tp, 8]\n"
      "out product.all [tokens, 11]\n"
      "forward: 2 gathers 456 B\n"
      "  normed, statistics = rms_norm(hidden; norm.weight)                    [tokens/tp, 8]\n"
      "  start gather tp: normed -> normed.all                                 [tokens, 8]\n"
      "  wait normed.all                                                                               free normed\n"
      "  product = project(normed.all; weight)                                 [tokens, 11/tp]\n"
      "  start gather tp: product -> product.all                               [tokens, 11]\n"
      "  wait product.all                                                                              free product\n"
      "keep 300 B: hidden 96 B, statistics 12 B, normed.all 192 B\n"
      "backward: 1 scatter 192 B\n"
      "  d.product = own_part(d.product.all)                                   [tokens, 11/tp]         free "
      "d.product.all\n"
      "  d.normed.all.part = product_back(d.product; weight)                   [tokens, 8] +tp\n"
      "  start scatter tp: d.normed.all.part -> d.normed                       [tokens/tp, 8]\n"
      "  product_weight(d.product, normed.all; weight)                                                 free d.product, "
      "normed.all\n"
      "  wait d.normed                                                                                 free "
      "d.normed.all.part\n"
      "  d.hidden = rms_norm_back(d.normed, hidden, statistics; norm.weight)   [tokens/tp, 8]          free d.normed, "
      "hidden, statistics\n");
}

TEST(Print, ASplitBackwardShowsWhatIsDeferred) {
  const Program program = test::program_of(test::over(test::llama(), {}), "embed");
  const UnitSizes one{.rows = 2, .sequence = 3};
  EXPECT_EQ(to_string(program, one, /*split=*/true),
            "in input_ids [tokens]\n"
            "out embedded [tokens, 8]\n"
            "forward\n"
            "  embedded = embedding(input_ids; weight)                               [tokens, 8]\n"
            "keep 0 B: input_ids\n"
            "defer 192 B: input_ids, d.embedded 192 B\n"
            "backward of weights\n"
            "  embedding_weight(d.embedded, input_ids; weight)                                               free "
            "d.embedded, input_ids\n");
}

TEST(Print, ADocumentHasTheSame) {
  const Program program = test::program_of(test::over(test::llama(), test::kSp), "layers.0");
  const auto document = program_document(program, kSizes);
  EXPECT_EQ(document["inputs"], Json({"hidden"}));
  EXPECT_EQ(document["kept"], Json(test::names(program, program.kept)));
  EXPECT_EQ(document["kept_bytes"], activation_bytes(program, program.kept, kSizes));
  EXPECT_EQ(document["deferred_bytes"], activation_bytes(program, program.deferred, kSizes));
  EXPECT_EQ(
      document["values"][0],
      Json({{"name", "hidden"}, {"place", "[tokens/tp, 8]"}, {"shape", {3, 8}}, {"number", "compute"}, {"bytes", 96}}));
  EXPECT_EQ(document["forward"]["exchanged"]["gather"], Json({{"calls", 2}, {"bytes", 384}}));
  EXPECT_EQ(document["forward"]["operations"][1],
            Json({{"name", "start"},
                  {"in", {"normed"}},
                  {"out", {"normed.all"}},
                  {"attributes", {{"again", 1}}},
                  {"exchange", {{"kind", "gather"}, {"axis", "tp"}, {"dim", 0}}}}));
  EXPECT_EQ(document["forward"]["operations"].size(), program.forward.size());
}

// Names tell values apart.
TEST(Print, NamesAreUnique) {
  for (const auto& graph : {test::llama(), test::gpt2(), test::bert()}) {
    const GraphSpec placed = test::over(graph, test::kRegather);
    for (const auto& unit : placed.units) {
      std::set<std::string> names;
      for (const auto& value : test::program_of(placed, unit.name, {.all = true}).values) {
        EXPECT_TRUE(names.insert(value.name).second) << unit.name << " " << value.name;
      }
    }
  }
}

}  // namespace orthant::print_test
