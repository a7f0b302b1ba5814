// What programs exchange over tp, against a count that knows no programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/freeze.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"
#include "plan/estimate/product_traffic.h"
#include "program/compiled.h"

namespace orthant::program_traffic_test {

using test::Over;

struct Case {
  std::string name;
  GraphSpec graph;
};

std::vector<Case> cases() {
  LlamaConfig biased = test::small_llama();
  biased.attention_bias = biased.mlp_bias = true;
  std::vector<Case> found = {{"llama", test::llama()},
                             {"llama with biases", llama_spec(biased, test::small_work())},
                             {"gpt2", test::gpt2(true)},
                             {"gpt2 untied", test::gpt2(false)},
                             {"bert", test::bert()},
                             {"encoder_lm", encoder_lm_spec(test::small_encoder_lm(), test::small_work())},
                             {"trimodal", trimodal_spec(test::small_trimodal(), test::small_work())},
                             {"trimodal shared", trimodal_spec(test::small_trimodal(true), test::small_work())}};
  const std::size_t plain = found.size();
  for (std::size_t i = 0; i < plain; ++i) {
    for (const char* pattern : {"*embed*", "*layers.0.*", "*layers.*", "*norm*"}) {
      Case frozen = found[i];
      try {
        freeze(frozen.graph, {pattern});
      } catch (const std::exception&) {
        continue;  // it matches nothing here
      }
      frozen.name += fmt::format(" without {}", pattern);
      found.push_back(std::move(frozen));
    }
  }
  return found;
}

std::vector<Over> settings() {
  std::vector<Over> found;
  for (const int degree : {2, 4}) {
    for (const bool loss : {false, true}) {
      found.push_back({.degree = degree, .loss_parallel = loss});
      for (const bool regather : {false, true}) {
        found.push_back({.degree = degree, .sequence_parallel = true, .regather = regather, .loss_parallel = loss});
      }
    }
  }
  return found;
}

void add(Exchanged& total, const Exchanged& part, std::int64_t times = 1) {
  for (const auto member : {&Exchanged::sum, &Exchanged::gather, &Exchanged::scatter}) {
    (total.*member).calls += times * (part.*member).calls;
    (total.*member).bytes += times * (part.*member).bytes;
  }
}

// Of one microbatch. `split`: by B and W instead of both at once.
Exchanged by_programs(const GraphSpec& graph, Recompute recompute, bool in_forward, bool split) {
  UnitPrograms programs(graph, remake_of(recompute), {.gradients_in_forward = in_forward});
  Exchanged total;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const Program& program = programs[u];
    const UnitSizes sizes = unit_sizes(graph, graph.units[u], *graph.tensor);
    add(total, exchanged(program, program.forward, sizes));
    if (!split) add(total, exchanged(program, program.both, sizes));
    if (split) add(total, exchanged(program, program.input_part, sizes));
    if (split) add(total, exchanged(program, program.weight_part, sizes));
  }
  return total;
}

// The last sum of a layer is not made again where nothing in the layer reads it: where no norm follows it.
bool last_sum_is_read(const GraphSpec& graph) {
  return graph.name != "llama" && graph.name != "gpt2";
}

// The first trained layer of a post-norm model gathers its input again for its own product. Nothing travels back
// through that product, so the weight's gradient reads the same copy where the oracle counts a gather of its own. W has
// to gather itself.
bool shares_gather(const GraphSpec& graph, const UnitSpec& unit) {
  if (!graph.tensor->regather || !last_sum_is_read(graph) || !unit.recomputable) return false;
  const Program program = test::program_of(graph, unit.name);
  return program.has_backward() && program.gradients.front() < 0 && program.parameters.front().at.trainable;
}

Exchanged by_products(const GraphSpec& graph, Recompute recompute, bool split) {
  const test::ProductTraffic traffic = test::product_traffic(graph);
  Exchanged total = traffic.step;
  if (recompute != Recompute::full) return total;
  add(total, traffic.again);
  const auto token_bytes = [&](const UnitSpec& unit) {
    return num_elements(graph.value(graph.tokens_of(unit)).shape) * 8 * 4;  // 8 channels of float32
  };
  for (const auto& unit : graph.units) {
    if (!split && shares_gather(graph, unit)) add(total, {.gather = {1, token_bytes(unit)}}, -1);
    const bool again = unit.recomputable && test::program_of(graph, unit.name).has_backward();
    if (!again || last_sum_is_read(graph)) continue;
    const Exchanged::Entry last{1, token_bytes(unit)};
    add(total, graph.tensor->sequence_parallel ? Exchanged{.scatter = last} : Exchanged{.sum = last}, -1);
  }
  return total;
}

std::string text(const Exchanged& sent) {
  return fmt::format("sum {} {}, gather {} {}, scatter {} {}", sent.sum.calls, sent.sum.bytes, sent.gather.calls,
                     sent.gather.bytes, sent.scatter.calls, sent.scatter.bytes);
}

TEST(ProgramTraffic, IsWhatSplitsOfParametersSay) {
  int compared = 0;
  for (const auto& [name, declared] : cases()) {
    for (const Over& over : settings()) {
      for (const bool joins : {false, true}) {
        GraphSpec graph = test::over(declared, over);
        if (joins) graph = join_head_and_loss(std::move(graph), {.on_host = false, .chunk_rows = 4});
        for (const Recompute recompute : kRecomputeModes) {
          for (const bool split : {false, true}) {
            const std::string expected = text(by_products(graph, recompute, split));
            for (const bool in_forward : {false, true}) {
              ++compared;
              EXPECT_EQ(text(by_programs(graph, recompute, in_forward, split)), expected) << fmt::format(
                  "{} tp {} sp {} regather {} loss parallel {} joined {} recompute {} in forward {} split {}", name,
                  over.degree, over.sequence_parallel, over.regather, over.loss_parallel, joins,
                  recompute_name(recompute), in_forward, split);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 5000);
}

}  // namespace orthant::program_traffic_test
