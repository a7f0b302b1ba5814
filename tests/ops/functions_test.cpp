// What recording functions record.
#include "orthant/ops/functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/ops/rule.h"

namespace orthant::functions_test {

// The operations that a body has, in order.
std::vector<std::string> names(const Body& body) {
  std::vector<std::string> found;
  for (const auto& operation : body.operations) found.push_back(operation.name);
  return found;
}
using Names = std::vector<std::string>;

TEST(Operations, ALinearLayerIsAProductAndItsBias) {
  Recorder r;
  const Value x = r.tokens("x", 8);
  const Value y = ops::linear(r, x, {.weight = "w", .bias = "b", .out = 12});
  EXPECT_EQ(r.channels(y), 12);
  EXPECT_EQ(r.channels(ops::linear(r, y, {.weight = "qkv", .out = 3, .joined = true})), 3);
  const Body body = r.finish();
  EXPECT_EQ(names(body), (Names{"product", "bias", "product"}));
  EXPECT_EQ(body.parameters, (std::vector<BodyParameter>{{"w"}, {"b"}, {"qkv", true}}));
}

TEST(Operations, SwigluHalvesChannelsAndOthersKeepThem) {
  Recorder r;
  const Value x = r.tokens("x", 8);
  EXPECT_EQ(r.channels(ops::activation(r, x, "swiglu")), 4);
  EXPECT_EQ(r.channels(ops::activation(r, x, "gelu", 0.1, "site")), 8);
  const Body body = r.finish();
  EXPECT_EQ(body.operations[1].attributes.text("kind"), "gelu");
  EXPECT_EQ(body.operations[1].attributes.number("p"), 0.1);
}

TEST(Operations, NoDropoutIsRecordedWhereNothingIsDropped) {
  Recorder r;
  const Value x = r.tokens("x", 8);
  EXPECT_EQ(ops::dropout(r, x, 0, "site").id, x.id);
  EXPECT_NE(ops::dropout(r, x, 0.5, "site").id, x.id);
  EXPECT_EQ(names(r.finish()), Names{"dropout"});
}

TEST(Operations, AttentionHasStatisticsPerHead) {
  Recorder r;
  const Value qkv = r.tokens("qkv", 16);
  const Value y = ops::attention(r, qkv, {}, {4, 2, 2}, {.causal = true});
  EXPECT_EQ(r.channels(y), 8);
  const Body body = r.finish();
  const Operation& attention = body.operations.front();
  EXPECT_EQ(attention.in[1], -1);
  EXPECT_EQ(body.values[static_cast<std::size_t>(attention.out[1])].dims,
            (std::vector<Dim>{{Sym::rows}, {Sym::one, 4}, {Sym::sequence}}));
  EXPECT_TRUE(attention.attributes.flag("causal"));
}

TEST(Operations, NormsHaveOneOrTwoStatisticsPerToken) {
  Recorder r;
  const Value x = r.tokens("x", 8);
  ops::rms_norm(r, x, "w", 1e-5);
  ops::layer_norm(r, x, "w", "b", 1e-5);
  const Body body = r.finish();
  const auto statistics = [&](std::size_t i) {
    return body.values[static_cast<std::size_t>(body.operations[i].out[1])].dims.back().factor;
  };
  EXPECT_EQ(statistics(0), 1);
  EXPECT_EQ(statistics(1), 2);
}

TEST(Operations, ConcatenationsAddChannelsAndFirstTokensAreRows) {
  Recorder r;
  const Value x = r.tokens("x", 8);
  const Value first = ops::first_token(r, x);
  EXPECT_EQ(r.dims(first)[0].sym, Sym::rows);
  EXPECT_EQ(r.channels(ops::concat(r, {first, r.rows("y", 5)})), 13);
}

TEST(Operations, TablesAreLookedUpInTheirOrder) {
  Recorder r;
  const Value ids = r.field("ids", Sym::tokens, Number::index);
  ops::embedding(r,
                 {{.ids = ids, .table = "words", .entries = 11},
                  {.ids = ids, .by = ops::Lookup::By::counted_positions, .table = "at", .padding = 1, .first = 2}},
                 8);
  const Body body = r.finish();
  const Operation& lookup = body.operations.front();
  EXPECT_EQ(lookup.attributes.text("by0"), "ids");
  EXPECT_EQ(lookup.attributes.text("by1"), "counted_positions");
  EXPECT_EQ(lookup.attributes.integer("padding1"), 1);
  EXPECT_EQ(lookup.attributes.integer("first1"), 2);
}

TEST(Operations, NamesThatCanBeMadeAgainAreOperationsOrKindsOfActivations) {
  const std::set<std::string> kinds = {"swiglu", "gelu", "gelu_tanh", "relu", "silu", "tanh"};
  for (const auto& name : remade_names()) {
    if (!kinds.contains(name)) EXPECT_NE(op_rule(name).derive, nullptr) << name;
  }
  for (const auto& kind : kinds) EXPECT_EQ(std::ranges::count(remade_names(), kind), 1) << kind;
}

TEST(Operations, RulesAreFoundByName) {
  for (const char* name :
       {"activation", "add", "attention", "bias", "concat", "convert", "cross_entropy", "dropout", "embedding",
        "first_token", "head_loss", "layer_norm", "product", "rms_norm", "rotary", "waves"}) {
    EXPECT_EQ(op_rule(name).name, name);
    EXPECT_NE(op_rule(name).place, nullptr);
  }
  EXPECT_EQ(error_text<InternalError>([] { op_rule("softmax"); }), "no operation is named \"softmax\"");
}

}  // namespace orthant::functions_test
