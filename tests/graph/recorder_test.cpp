#include "orthant/graph/recorder.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"

namespace orthant::recorder_test {

TEST(Recorder, InputsHaveDimsOfTheirKind) {
  Recorder r;
  const Value x = r.tokens("x", 8);
  const Value y = r.rows("y", 3);
  const Value ids = r.field("ids", Sym::tokens, Number::index);
  EXPECT_EQ(r.dims(x), (std::vector<Dim>{{Sym::tokens}, {Sym::one, 8}}));
  EXPECT_EQ(r.dims(y), (std::vector<Dim>{{Sym::rows}, {Sym::one, 3}}));
  EXPECT_EQ(r.dims(ids), (std::vector<Dim>{{Sym::tokens}}));
  EXPECT_EQ(r.channels(y), 3);
  r.output(y);
  const Body body = r.finish();
  EXPECT_EQ(body.inputs, (std::vector<int>{x.id, y.id, ids.id}));
  EXPECT_EQ(body.outputs, (std::vector<int>{y.id}));
  EXPECT_EQ(body.values[2].number, Number::index);
}

TEST(Recorder, AParameterIsListedOnce) {
  Recorder r;
  EXPECT_EQ(r.parameter("w"), 0);
  EXPECT_EQ(r.joined("w"), 1);  // a label is another thing
  EXPECT_EQ(r.parameter("w"), 0);
  EXPECT_EQ(r.finish().parameters, (std::vector<BodyParameter>{{"w", false}, {"w", true}}));
}

TEST(Attributes, AreSetFoundAndReplaced) {
  Attributes attributes;
  attributes.set("n", std::int64_t{3});
  attributes.set("p", 0.5);
  attributes.set("site", std::string("a"));
  attributes.set("numbers", std::vector<double>{1, 2});
  EXPECT_EQ(attributes.integer("n"), 3);
  EXPECT_EQ(attributes.number("p"), 0.5);
  EXPECT_EQ(attributes.text("site"), "a");
  EXPECT_EQ(attributes.numbers("numbers"), (std::vector<double>{1, 2}));
  EXPECT_TRUE(attributes.flag("n"));
  attributes.set("n", std::int64_t{0});
  EXPECT_FALSE(attributes.flag("n"));
  EXPECT_FALSE(attributes.flag("absent"));
  EXPECT_EQ(attributes.find("absent"), nullptr);
  EXPECT_EQ(attributes.all().size(), 4U);
}

TEST(Attributes, OfAnotherTypeOrNameAreRefused) {
  Attributes attributes;
  attributes.set("n", std::int64_t{3});
  EXPECT_EQ(error_text<InternalError>([&] { attributes.number("n"); }), "an operation lacks its attribute \"n\"");
  EXPECT_EQ(error_text<InternalError>([&] { attributes.integer("m"); }), "an operation lacks its attribute \"m\"");
}

TEST(ValuePlace, KnowsWhetherTokensAreCut) {
  EXPECT_FALSE((ValuePlace{{{Sym::tokens}, {Sym::one, 8}}}).cuts_tokens());
  EXPECT_TRUE((ValuePlace{{{Sym::tokens, 1, {{Axis::tp}}}, {Sym::one, 8}}}).cuts_tokens());
  EXPECT_FALSE((ValuePlace{{{Sym::rows, 1, {{Axis::tp}}}}}).cuts_tokens());
  EXPECT_FALSE(ValuePlace{}.cuts_tokens());
}

}  // namespace orthant::recorder_test
