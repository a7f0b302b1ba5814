// Every program of every family under every setting can run, and the checks that say so can fail.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/freeze.h"
#include "orthant/models/head_loss.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"
#include "program/compiled.h"
#include "program/list_checker.h"

namespace orthant::property_test {

using test::Over;

std::vector<GraphSpec> families() {
  LlamaConfig biased = test::small_llama();
  biased.attention_bias = biased.mlp_bias = true;
  biased.attention_dropout = 0.1;
  return {test::llama(),
          llama_spec(biased, test::small_work(), {.mask = true}),
          llama_spec(test::small_mixture(), test::small_work()),
          test::gpt2(true),
          test::gpt2(false),
          test::bert(),
          encoder_lm_spec(test::small_encoder_lm(), test::small_work()),
          trimodal_spec(test::small_trimodal(), test::small_work()),
          trimodal_spec(test::small_trimodal(true), test::small_work())};
}

std::vector<Over> settings() {
  std::vector<Over> found = {{}};
  for (const bool loss : {false, true}) {
    found.push_back({.degree = 2, .loss_parallel = loss});
    for (const bool regather : {false, true}) {
      found.push_back({.degree = 2, .sequence_parallel = true, .regather = regather, .loss_parallel = loss});
    }
  }
  return found;
}

const std::vector<Remake> kRemakes = {{},
                                      {.operations = {"attention"}},
                                      {.all = true},
                                      {.operations = {"rms_norm", "layer_norm"}},
                                      {.operations = {"product", "bias"}},
                                      {.operations = {"rotary", "add", "dropout"}}};

// Patterns of what is frozen, which need not match.
const std::vector<std::vector<std::string>> kFrozen = {
    {}, {"*embed*"}, {"*embed*", "*layers.0.*"}, {"*norm*", "*ln_*"}, {"*bias"}, {"*mlp*", "*head*"}, {"*attention*"}};

GraphSpec frozen(GraphSpec graph, const std::vector<std::string>& patterns) {
  for (const auto& pattern : patterns) {
    try {
      freeze(graph, {pattern});
    } catch (const std::exception&) {  // it matches nothing here
    }
  }
  return graph;
}

// As text; empty when all is well.
std::string problems_of(const GraphSpec& graph, const Remake& remake, int& num_programs) {
  std::string text;
  for (const bool in_forward : {false, true}) {
    UnitPrograms programs(graph, remake, {.gradients_in_forward = in_forward});
    std::set<const Program*> seen;
    for (std::size_t u = 0; u < graph.units.size(); ++u) {
      if (!seen.insert(&programs[u]).second) continue;
      ++num_programs;
      const auto found = test::problems(programs[u]);
      if (!found.empty()) text += fmt::format("{}: {}\n", graph.units[u].name, fmt::join(found, ", "));
    }
  }
  return text;
}

TEST(Programs, OfEveryFamilyAndSettingCanRun) {
  int num_programs = 0;
  for (const auto& family : families()) {
    for (const auto& patterns : kFrozen) {
      const GraphSpec declared = frozen(family, patterns);
      for (const Over& over : settings()) {
        for (const bool joins : {false, true}) {
          GraphSpec graph = test::over(declared, over);
          if (joins) graph = join_head_and_loss(std::move(graph), {.on_host = false, .chunk_rows = 4});
          for (const Remake& remake : kRemakes) {
            EXPECT_EQ(problems_of(graph, remake, num_programs), "")
                << fmt::format("{} frozen [{}] tp {} sp {} regather {} loss parallel {} joined {} remake {} [{}]",
                               family.name, fmt::join(patterns, " "), over.degree, over.sequence_parallel,
                               over.regather, over.loss_parallel, joins, remake.all, fmt::join(remake.operations, " "));
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_GT(num_programs, 20000);
}

TEST(Programs, OfAnEvaluationCanRun) {
  for (const auto& family : families()) {
    for (const Over& over : settings()) {
      const GraphSpec graph = test::over(family, over);
      for (const auto& unit : graph.units) {
        const Program program = compile_unit(graph, unit, {.training = false});
        EXPECT_EQ(test::problems(program), std::vector<std::string>()) << unit.name;
        EXPECT_FALSE(program.has_backward());
        EXPECT_TRUE(program.kept.empty());
      }
    }
  }
}

// A change to a program, and what the checks say of it.
struct Doctored {
  const char* what;
  Over over;
  void (*change)(Program&);
  std::vector<std::string> found;
};

Operation& operation(std::vector<Operation>& list, const char* name) {
  return *std::ranges::find(list, name, &Operation::name);
}

void erase(std::vector<Operation>& list, const char* name) {
  list.erase(std::ranges::find(list, name, &Operation::name));
}

const std::vector<Doctored> kDoctored = {
    {"a free is missing",
     test::kSp,
     [](Program& p) { operation(p.forward, "wait").frees.clear(); },
     {"F is left behind: normed"}},
    {"a value is freed twice",
     test::kSp,
     [](Program& p) { p.forward.back().frees.push_back(operation(p.forward, "wait").frees.front()); },
     {"F frees what is not there: normed"}},
    {"a wait is missing",
     test::kSp,
     [](Program& p) { erase(p.forward, "wait"); },
     {"F reads what is on its way: normed.all", "F nobody waits for normed.all", "F is left behind: normed"}},
    {"a start is missing",
     test::kRegather,
     [](Program& p) { erase(p.weight_part, "start"); },
     {"W waits for what was not sent: normed2.all", "W reads what is not there: normed2.all",
      "W frees what is not there: normed2.all"}},
    {"a value is freed before its reader",
     test::kRegather,
     [](Program& p) { p.forward[0].frees.push_back(p.forward[0].in[0]); },
     {"F reads what is not there: hidden", "F is missing at the end: hidden"}},
    {"a value is not kept",
     test::kRegather,
     [](Program& p) { std::erase(p.kept, operation(p.forward, "rms_norm").out[1]); },
     {"F is left behind: statistics", "BW reads what is not there: statistics",
      "BW frees what is not there: statistics", "B reads what is not there: statistics",
      "B is missing at the end: statistics"}},
    {"a value is not deferred",
     test::kRegather,
     [](Program& p) { std::erase(p.deferred, operation(p.forward, "rms_norm").out[1]); },
     {"B is left behind: statistics", "W reads what is not there: statistics",
      "W frees what is not there: statistics"}},
    {"a weight's gradient is missing",
     test::kRegather,
     [](Program& p) { operation(p.both, "product_weight").parameters.clear(); },
     {"BW adds 0 gradients of mlp.w2.weight"}},
    {"a norm adds its gradient in B",
     test::kRegather,
     [](Program& p) { operation(p.input_part, "rms_norm_back").attributes.set("weights", 1); },
     {"B adds 1 gradients of norm2.weight"}},
    {"W reads a parameter",
     test::kRegather,
     [](Program& p) { operation(p.weight_part, "rms_norm_back").name = "rms_norm"; },
     {"W reads a parameter in rms_norm", "W adds 0 gradients of norm2.weight"}},
    {"a value is made twice",
     test::kRegather,
     [](Program& p) { p.forward.insert(p.forward.begin(), p.forward.front()); },
     {"F makes what is there: normed", "F makes what is there: statistics"}},
    {"what rotation overwrote is read",
     test::kRegather,
     [](Program& p) {
       auto& attention = operation(p.forward, "rotary_attention");
       const int product = attention.in[0];
       std::erase(attention.frees, product);
       auto& next = p.forward[static_cast<std::size_t>(&attention - p.forward.data()) + 1];
       next.in.push_back(product);
       next.frees.push_back(product);
     },
     {"F reads what was overwritten: product"}}};

TEST(Programs, ChecksFindWhatIsWrong) {
  for (const auto& doctored : kDoctored) {
    Program program = test::program_of(test::over(test::llama(), doctored.over), "layers.0");
    ASSERT_EQ(test::problems(program), std::vector<std::string>());
    doctored.change(program);
    EXPECT_EQ(test::problems(program), doctored.found) << doctored.what;
  }
}

}  // namespace orthant::property_test
