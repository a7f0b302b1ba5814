// Which products read float8, where their operands are rounded, and what is refused.
#include "orthant/program/float8.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error_text.h"
#include "orthant/program/sizes.h"
#include "program/compiled.h"
#include "program/list_checker.h"

namespace orthant::float8_test {

using test::Lines;
using test::Over;

constexpr Over kAll[] = {{}, test::kTp, test::kSp, test::kRegather};

LlamaConfig llama_config() {
  LlamaConfig config = test::small_llama();
  config.hidden_size = 32;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 2;
  config.intermediate_size = 64;
  return config;
}

GraphSpec llama(const Over& over = {}) {
  return test::over(llama_spec(llama_config(), test::small_work()), over);
}

TEST(Float8, RoundsTheOperandsOfALayersProducts) {
  const Program program = test::program_of(with_float8_products(llama()), "layers.0");
  EXPECT_EQ(test::lines(program, program.forward, "round_float8"),
            (Lines{"normed.float8, normed.scales = round_float8(normed)",
                   "attended.float8, attended.scales = round_float8(attended)",
                   "normed2.float8, normed2.scales = round_float8(normed2)",
                   "active.float8, active.scales = round_float8(active)"}));
  EXPECT_EQ(test::lines(program, program.forward, "project"),
            (Lines{"product = project(normed.float8, -, normed.scales; qkv)",
                   "sum = project(attended.float8, hidden, attended.scales; attention.wo.weight)",
                   "product3 = project(normed2.float8, -, normed2.scales; gate_up)",
                   "sum2 = project(active.float8, sum, active.scales; mlp.w2.weight)"}));
  EXPECT_EQ(test::lines(program, program.both, "product_back").size(), 4U);
  EXPECT_EQ(test::lines(program, program.both, "product_back").front(),
            "d.active = product_back(d.sum2.float8, d.sum2.scales; mlp.w2.weight)");
  // Gradients of weights are products of what was not rounded.
  EXPECT_EQ(test::lines(program, program.both, "product_weight").back(), "product_weight(d.product, normed; qkv)");
}

template <typename Config>
Config wide_enough(Config config) {
  config.hidden_size = 32;
  config.num_attention_heads = 2;
  config.intermediate_size = 64;
  return config;
}

TEST(Float8, ProgramsOfOtherFamiliesCanRun) {
  TrimodalConfig trimodal = test::small_trimodal();
  trimodal.primary = trimodal.secondary = wide_enough(trimodal.primary);
  const std::vector<GraphSpec> graphs = {
      gpt2_spec(wide_enough(test::small_gpt2()), test::small_work()),
      bert_model_spec({.encoder = wide_enough(test::small_bert().encoder), .freeze = {}}, test::small_work()),
      encoder_lm_spec(wide_enough(test::small_encoder_lm()), test::small_work()),
      trimodal_spec(trimodal, test::small_work())};
  for (const auto& declared : graphs) {
    for (const Over& over : kAll) {
      const GraphSpec graph = with_float8_products(test::over(declared, over));
      int rounded = 0;
      for (const auto& unit : graph.units) {
        const Program program = test::program_of(graph, unit.name);
        EXPECT_EQ(test::problems(program), std::vector<std::string>()) << graph.name << " " << unit.name;
        rounded += static_cast<int>(test::lines(program, program.forward, "round_float8").size());
        EXPECT_EQ(test::lines(program, program.forward, "round_float8").empty(), !unit.recomputable) << unit.name;
        EXPECT_EQ(test::lines(program, program.both, "round_float8").empty(), !unit.recomputable) << unit.name;
      }
      EXPECT_GE(rounded, 8) << graph.name;
    }
  }
}

TEST(Float8, EmbeddingHeadAndLossStayAsTheyWere) {
  const GraphSpec plain = llama(), marked = with_float8_products(plain);
  for (const auto& unit : plain.units) {
    const bool layer = unit.name.starts_with("layers.");
    EXPECT_EQ(test::program_of(marked, unit.name) == test::program_of(plain, unit.name), !layer) << unit.name;
  }
  EXPECT_EQ(with_float8_products(marked), marked) << "a marked graph stays";
}

TEST(Float8, KeepsWhatIsKeptWithoutIt) {
  for (const Over& over : kAll) {
    for (const Remake& remake : {Remake{}, remake_of(Recompute::selective), remake_of(Recompute::full)}) {
      const GraphSpec graph = llama(over);
      const Program plain = test::program_of(graph, "layers.0", remake);
      const Program marked = test::program_of(with_float8_products(graph), "layers.0", remake);
      EXPECT_EQ(plain.kept, marked.kept);
      EXPECT_EQ(plain.deferred, marked.deferred);
      EXPECT_EQ(test::problems(marked), std::vector<std::string>());
    }
  }
}

TEST(Float8, ExchangesNothingMore) {
  for (const Over& over : kAll) {
    const GraphSpec graph = llama(over);
    const Program plain = test::program_of(graph, "layers.0");
    const Program marked = test::program_of(with_float8_products(graph), "layers.0");
    EXPECT_EQ(test::lines(plain, plain.forward, "start"), test::lines(marked, marked.forward, "start"));
    EXPECT_EQ(test::lines(plain, plain.both, "start"), test::lines(marked, marked.both, "start"));
  }
}

TEST(Float8, ARoundedValueTakesAByteAndItsRowsAScale) {
  const GraphSpec graph = with_float8_products(llama());
  const Program program = test::program_of(graph, "layers.0");
  const auto bytes = [&](const char* name) {
    const auto found = std::ranges::find(program.values, name, &ProgramValue::name);
    return local_bytes(*found, {.rows = 2, .sequence = 3, .compute = DType::bfloat16});
  };
  EXPECT_EQ(bytes("normed"), 6 * 32 * 2);
  EXPECT_EQ(bytes("normed.float8"), 6 * 32);
  EXPECT_EQ(bytes("normed.scales"), 6 * 4);
}

TEST(Float8, WidthsAreThoseOfOneRanksRows) {
  EXPECT_EQ(float8_widths(with_float8_products(llama())), (std::set<std::int64_t>{32, 64, 96, 128}));
  EXPECT_EQ(float8_widths(with_float8_products(llama(test::kTp))), (std::set<std::int64_t>{16, 32, 48, 64}));
}

TEST(Float8, RefusesWeightsThatAreNoMultiplesOf16) {
  LlamaConfig config = llama_config();
  config.intermediate_size = 48;
  const auto graph = [&](const Over& over) { return test::over(llama_spec(config, test::small_work()), over); };
  EXPECT_NO_THROW(with_float8_products(graph({})));
  const auto text = error_text<ConfigError>([&] { with_float8_products(graph(test::kTp)); });
  EXPECT_NE(
      text.find("precision.compute=float8: mlp.w2.weight of unit layers.0 is [32, 48], on one of 2 tp ranks up to "
                "[32, 24]; cards multiply float8 by 16 outputs and inputs at a time"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("use sizes that are multiples of 16 on every tp rank, or precision.compute=bfloat16"),
            std::string::npos)
      << text;
}

TEST(Float8, RefusesOddSizesOnOneRank) {
  const auto text = error_text<ConfigError>([] { with_float8_products(test::llama()); });
  EXPECT_NE(text.find("qkv of unit layers.0 is [16, 8]; cards multiply"), std::string::npos) << text;
  EXPECT_NE(text.find("use sizes that are multiples of 16, or precision"), std::string::npos) << text;
}

TEST(Float8, RefusesMixturesAndGraphsWithoutLayers) {
  const auto mixture =
      error_text<ConfigError>([] { with_float8_products(llama_spec(test::small_mixture(), test::small_work())); });
  EXPECT_NE(mixture.find("unit layers.1 is a mixture of 5 experts, whose products have no float8"), std::string::npos)
      << mixture;
  GraphSpec bare = llama();
  for (auto& unit : bare.units) unit.recomputable = false;
  const auto text = error_text<ConfigError>([&] { with_float8_products(bare); });
  EXPECT_NE(text.find("graph \"llama\" has no transformer layer with products"), std::string::npos) << text;
}

}  // namespace orthant::float8_test
