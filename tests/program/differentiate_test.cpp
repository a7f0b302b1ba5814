// The operations that make gradients: which, in which order, and which are left out.
#include "orthant/program/differentiate.h"

#include <gtest/gtest.h>

#include <functional>

#include "orthant/models/freeze.h"
#include "orthant/ops/functions.h"
#include "program/compiled.h"

namespace orthant::differentiate_test {

using test::Lines;

// A unit of its own on one rank, with parameters [8, 8], [8] by name, whose inputs need gradients.
Program unit_of(const std::function<void(Recorder&)>& record, const std::vector<ParameterSpec>& parameters = {},
                bool needs = true) {
  Recorder r;
  record(r);
  GraphSpec graph;
  UnitSpec unit{.name = "u", .kind = "u"};
  unit.parameters = parameters;
  const Body body = r.finish();
  for (const int input : body.inputs) unit.inputs.push_back(body.values[static_cast<std::size_t>(input)].name);
  for (std::size_t i = 0; i < body.outputs.size(); ++i) unit.outputs.push_back("out" + std::to_string(i));
  for (const auto& name : unit.inputs) graph.batch_fields.push_back({.name = name});
  for (const auto& name : unit.outputs) graph.values.push_back({.name = name});
  unit.body = body;
  graph.units = {unit};
  std::vector<bool> wanted;
  for (const int input : body.inputs) {
    wanted.push_back(needs && body.values[static_cast<std::size_t>(input)].number == Number::compute);
  }
  return compile_unit(graph, unit, {.needs = wanted});
}

Lines backward(const std::function<void(Recorder&)>& record, const std::vector<ParameterSpec>& parameters = {},
               bool needs = true) {
  const Program program = unit_of(record, parameters, needs);
  return test::lines(program, program.both);
}

ParameterSpec weight(const char* name, Shape shape, bool trainable = true) {
  return {.name = std::string("u.") + name, .shape = std::move(shape), .trainable = trainable};
}

void linear(Recorder& r) {
  r.output(ops::linear(r, r.tokens("x", 8), {.weight = "w", .bias = "b", .out = 8}));
}

TEST(Differentiate, ALinearLayer) {
  EXPECT_EQ(backward(linear, {weight("w", {8, 8}), weight("b", {8})}),
            (Lines{"bias_weight(d.biased; b)", "d.x = product_back(d.biased; w)", "product_weight(d.biased, x; w)"}));
}

TEST(Differentiate, WhatIsFrozenOrNotAskedForIsLeftOut) {
  EXPECT_EQ(backward(linear, {weight("w", {8, 8}, false), weight("b", {8})}),
            (Lines{"bias_weight(d.biased; b)", "d.x = product_back(d.biased; w)"}));
  EXPECT_EQ(backward(linear, {weight("w", {8, 8}), weight("b", {8}, false)}, /*needs=*/false),
            (Lines{"product_weight(d.biased, x; w)"}));
  EXPECT_EQ(backward(linear, {weight("w", {8, 8}, false), weight("b", {8}, false)}, /*needs=*/false), Lines());
}

TEST(Differentiate, Norms) {
  const auto rms = [](Recorder& r) { r.output(ops::rms_norm(r, r.tokens("x", 8), "w", 1e-5)); };
  const auto layer = [](Recorder& r) { r.output(ops::layer_norm(r, r.tokens("x", 8), "w", "b", 1e-5)); };
  EXPECT_EQ(backward(rms, {weight("w", {8})}), (Lines{"d.x = rms_norm_back(d.normed, x, statistics; w)"}));
  EXPECT_EQ(backward(layer, {weight("w", {8}), weight("b", {8})}),
            (Lines{"d.x = layer_norm_back(d.normed, x, statistics; w, b)"}));
  EXPECT_EQ(backward(rms, {weight("w", {8})}, false), (Lines{"rms_norm_back(d.normed, x, statistics; w)"}));
  EXPECT_EQ(backward(rms, {weight("w", {8}, false)}, false), Lines());
  const Program frozen = unit_of(rms, {weight("w", {8}, false)});
  EXPECT_FALSE(frozen.both.front().attributes.flag("weights"));
}

// The residual's gradient rides along instead of being added afterwards.
TEST(Differentiate, ANormAddsWhatCameBackBesideIt) {
  EXPECT_EQ(backward(
                [](Recorder& r) {
                  const Value x = r.tokens("x", 8);
                  r.output(ops::add(r, ops::rms_norm(r, x, "w", 1e-5), x));
                },
                {weight("w", {8})}),
            (Lines{"d.x = rms_norm_back(d.sum, x, statistics, d.sum; w)"}));
}

TEST(Differentiate, ActivationsDropoutAndSums) {
  EXPECT_EQ(backward([](Recorder& r) { r.output(ops::activation(r, r.tokens("x", 8), "swiglu")); }),
            (Lines{"d.x = activation_back.swiglu(d.active, x)"}));
  EXPECT_EQ(backward([](Recorder& r) { r.output(ops::dropout(r, r.tokens("x", 8), 0.5, "s")); }),
            (Lines{"d.x = dropout(d.dropped)"}));
  // Nothing to do: both inputs have the gradient of the sum.
  const Program sum = unit_of([](Recorder& r) { r.output(ops::add(r, r.tokens("x", 8), r.tokens("y", 8))); });
  EXPECT_EQ(sum.both, std::vector<Operation>());
  EXPECT_EQ(sum.gradients, (std::vector<int>{sum.seeds[0], sum.seeds[0]}));
}

TEST(Differentiate, GradientsOfSeveralReadersAreAdded) {
  EXPECT_EQ(backward([](Recorder& r) {
              const Value x = r.tokens("x", 8);
              r.output(ops::add(r, ops::activation(r, x, "relu"), ops::activation(r, x, "tanh")));
            }),
            (Lines{"d.x = activation_back.tanh(d.sum, x)", "d.x' = activation_back.relu(d.sum, x)",
                   "d.x'' = add(d.x, d.x')"}));
}

TEST(Differentiate, RotaryAndAttention) {
  const ops::Heads heads{2, 1, 2};
  const auto attention = [&](Recorder& r) {
    r.output(ops::attention(r, r.tokens("qkv", 8), r.field("mask", Sym::tokens, Number::mask), heads, {}));
  };
  EXPECT_EQ(backward(attention), (Lines{"d.qkv = attention_back(d.attended, qkv, mask, attended, lse, bits)"}));
  EXPECT_EQ(backward([&](Recorder& r) { r.output(ops::rotary(r, r.tokens("qkv", 8), heads, {})); }),
            (Lines{"d.qkv = rotary_back(d.turned)"}));
}

// Tables read gradients, never tables: gradients of ids there are none.
TEST(Differentiate, Embeddings) {
  EXPECT_EQ(backward(
                [](Recorder& r) {
                  const Value ids = r.field("ids", Sym::tokens, Number::index);
                  r.output(ops::embedding(r,
                                          {{.ids = ids, .table = "words", .entries = 11},
                                           {.by = ops::Lookup::By::positions, .table = "positions"}},
                                          8));
                },
                {weight("words", {11, 8}), weight("positions", {9, 8})}),
            (Lines{"embedding_weight(d.embedded, ids; words)", "embedding_weight(d.embedded; positions)"}));
}

TEST(Differentiate, WavesFirstTokensAndConcatenations) {
  EXPECT_EQ(backward([](Recorder& r) { r.output(ops::add_waves(r, r.tokens("x", 8), 2.0)); }),
            (Lines{"d.x = scale(d.placed)"}));
  EXPECT_EQ(backward([](Recorder& r) { r.output(ops::first_token(r, r.tokens("x", 8))); }),
            (Lines{"d.x = first_token_back(d.first)"}));
  const auto concat = [](Recorder& r) { r.output(ops::concat(r, {r.rows("x", 3), r.rows("y", 5)})); };
  EXPECT_EQ(backward(concat), (Lines{"d.x = part(d.joined)", "d.y = part(d.joined)"}));
  const Program program = unit_of(concat);
  EXPECT_EQ(program.both[1].attributes.integer("first"), 3);
  EXPECT_EQ(program.both[1].attributes.integer("channels"), 5);
}

TEST(Differentiate, ConvertedNumbersHaveNoGradient) {
  EXPECT_EQ(backward([](Recorder& r) { r.output(ops::convert(r, r.rows("x", 3))); }), Lines());
}

TEST(Differentiate, CrossEntropy) {
  EXPECT_EQ(backward([](Recorder& r) {
              const Value logits = r.tokens("logits", 11);
              r.output(ops::cross_entropy(r, logits, r.field("labels", Sym::tokens, Number::index), {.classes = 11}));
            }),
            (Lines{"d.logits = cross_entropy_back(d.loss, logits, labels, lse)"}));
}

// A user's module with a trained and a frozen parameter, of which the first input needs a gradient.
Program module_program(const Remake& remake = {}, bool splits_backward = false) {
  UnitSpec unit{.name = "u", .kind = "module", .inputs = {"x", "y"}, .outputs = {"loss", "scores"}};
  unit.parameters = {weight("w", {8, 8}), weight("scale", {}, false)};
  unit.body = ops::module_body(unit, splits_backward);
  GraphSpec graph;
  for (const auto& name : unit.inputs) graph.batch_fields.push_back({.name = name});
  for (const auto& name : unit.outputs) graph.values.push_back({.name = name, .opaque = true});
  graph.units = {unit};
  return compile_unit(graph, unit, {.remake = remake, .needs = {true, false}});
}

TEST(Differentiate, AModuleKeepsItsGraphAndMakesAllGradientsAtOnce) {
  const Program program = module_program();
  EXPECT_EQ(test::lines(program, program.forward), (Lines{"loss, scores, graph = module(x, y; w, scale)"}));
  EXPECT_EQ(test::names(program, program.forward.front().frees), (Lines{"x", "y"}));
  EXPECT_EQ(test::names(program, program.kept), (Lines{"graph"}));
  const Lines back = {"d.x = module_back(graph, d.loss, d.scores; w, scale)"};
  EXPECT_EQ(test::lines(program, program.both), back);
  EXPECT_EQ(test::lines(program, program.input_part), back);
  EXPECT_EQ(test::lines(program, program.weight_part), Lines());
  EXPECT_TRUE(program.deferred.empty());
}

TEST(Differentiate, ARecomputedModuleKeepsItsInputsAndRunsAgain) {
  const Program program = module_program({.all = true});
  EXPECT_EQ(test::names(program, program.forward.front().frees), (Lines{"graph"}));
  EXPECT_EQ(test::names(program, program.kept), (Lines{"x", "y"}));
  EXPECT_EQ(test::lines(program, program.both), (Lines{"loss, scores, graph = module(x, y; w, scale)",
                                                       "d.x = module_back(graph, d.loss, d.scores; w, scale)"}));
  EXPECT_EQ(program.both, program.input_part);
}

TEST(Differentiate, AModuleMayLeaveAPartOfItsBackwardToTheWeights) {
  const Program program = module_program({}, /*splits_backward=*/true);
  EXPECT_EQ(test::lines(program, program.weight_part), (Lines{"module_weights(; w, scale)"}));
  EXPECT_EQ(test::lines(program, program.both),
            (Lines{"d.x = module_back(graph, d.loss, d.scores; w, scale)", "module_weights(; w, scale)"}));
}

// Over tp the gradient of a column product's input is a summand; of a row product's it is whole.
TEST(Differentiate, GradientsAreSummedBehindColumnProductsAlone) {
  const Program program = test::program_of(test::over(test::bert(), test::kTp), "layers.0");
  EXPECT_EQ(test::lines(program, program.input_part, "start"),
            (Lines{"start sum tp: d.normed.part -> d.normed", "start sum tp: d.hidden.part -> d.hidden"}));
  EXPECT_EQ(test::lines(program, program.weight_part, "start"), Lines());
}

// The first layer of a model whose embedding is frozen: no gradient of its input, and none of what feeds its norm
// alone.
TEST(Differentiate, NothingBelowTheFirstTrainedParameterIsDerived) {
  GraphSpec graph = test::llama();
  freeze(graph, {"embed.*", "layers.0.norm1.*"});
  graph = test::over(graph, test::kTp);
  const Program embed = test::program_of(graph, "embed");
  EXPECT_FALSE(embed.has_backward());
  EXPECT_TRUE(embed.kept.empty());
  const Program layer = test::program_of(graph, "layers.0");
  EXPECT_EQ(layer.gradients, (std::vector<int>{-1}));
  EXPECT_EQ(test::lines(layer, layer.both, "start"), (Lines{"start sum tp: d.normed2.part -> d.normed2"}));
  EXPECT_EQ(test::lines(layer, layer.both, "rms_norm_back"),
            (Lines{"d.sum.summed = rms_norm_back(d.normed2, sum.summed, statistics2, d.sum2.summed; norm2.weight)"}));
  EXPECT_EQ(layer.both.back().name, "product_weight");
}

TEST(Differentiate, AHeadThatIsTheLossMakesGradientsInForward) {
  const GraphSpec graph =
      join_head_and_loss(test::over(test::llama(), test::kTp), {.join = JoinHeadAndLoss::on, .chunk_rows = 4});
  const UnitSpec& head = graph.unit("head");
  const Program program = compile_unit(graph, head, {.needs = {true, false}, .gradients_in_forward = true});
  EXPECT_EQ(test::lines(program, program.forward),
            (Lines{"normed, statistics = rms_norm(hidden; norm.weight)",
                   "loss, -, d.normed.part = head_loss_gradients(normed, labels, d.loss; weight)",
                   "start sum tp: d.normed.part -> d.normed", "wait d.normed"}));
  EXPECT_EQ(test::names(program, program.kept), (Lines{"hidden", "statistics", "d.normed"}));
  EXPECT_EQ(test::lines(program, program.both),
            (Lines{"d.hidden = rms_norm_back(d.normed, hidden, statistics; norm.weight)"}));
  const Program apart = compile_unit(graph, head, {.needs = {true, false}});
  EXPECT_EQ(test::lines(apart, apart.weight_part), (Lines{"head_loss_back(d.loss, normed, labels, lse; weight)",
                                                          "rms_norm_back(d.normed, hidden, statistics; norm.weight)"}));
}

}  // namespace orthant::differentiate_test
