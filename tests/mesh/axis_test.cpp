#include "orthant/mesh/axis.h"

#include <gtest/gtest.h>

#include <vector>

#include "mesh/thrown_error.h"
#include "orthant/mesh/axis_order.h"

namespace orthant {
namespace axis_test {

using test::thrown_text;

constexpr const char* kAllAxes = "the axes are pp, dp, fsdp, cp, tp, ep";

TEST(Axis, NamesParseBack) {
  for (Axis axis : kAxes) EXPECT_EQ(parse_axis(axis_name(axis)), axis);
}

TEST(Axis, UnknownNameIsAnsweredWithTheNearest) {
  EXPECT_EQ(thrown_text([] { parse_axis("fdsp"); }), std::string("unknown axis \"fdsp\"\nuse fsdp; ") + kAllAxes);
  EXPECT_EQ(thrown_text([] { parse_axis("TP"); }), std::string("unknown axis \"TP\"\nuse tp; ") + kAllAxes);
}

TEST(Axis, FullWordIsAnsweredWithItsShortName) {
  EXPECT_NE(thrown_text([] { parse_axis("tensor"); }).find("use tp; "), std::string::npos);
  EXPECT_NE(thrown_text([] { parse_axis("pipelin"); }).find("use pp; "), std::string::npos);
  EXPECT_NE(thrown_text([] { parse_axis("experts"); }).find("use ep; "), std::string::npos);
}

TEST(Axis, NameFarFromAllIsAnsweredWithTheList) {
  EXPECT_EQ(thrown_text([] { parse_axis("banana"); }), std::string("unknown axis \"banana\"\n") + kAllAxes);
}

TEST(Axis, ControlCharactersAreEscapedInErrors) {
  const std::string text = thrown_text([] { parse_axis("t\x1b[31m\np"); });
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\n'), text.find("\nthe axes")) << text;
}

TEST(AxisSet, IteratesInCanonicalOrder) {
  const AxisSet axes = {Axis::tp, Axis::ep, Axis::pp, Axis::fsdp};
  EXPECT_EQ(std::vector<Axis>(axes.begin(), axes.end()), (std::vector{Axis::pp, Axis::fsdp, Axis::tp, Axis::ep}));
  EXPECT_EQ(axes.size(), 4);
  EXPECT_EQ(AxisSet().begin(), AxisSet().end());
}

TEST(AxisSet, IsNamedByItsAxes) {
  EXPECT_EQ(AxisSet(Axis::tp).name(), "tp");
  EXPECT_EQ((AxisSet{Axis::fsdp, Axis::dp}.name()), "dp+fsdp");
  EXPECT_EQ(AxisSet().name(), "none");
  EXPECT_EQ(AxisSet::parse("fsdp + dp"), (AxisSet{Axis::dp, Axis::fsdp}));
}

TEST(AxisSet, RefusesBadTexts) {
  EXPECT_EQ(thrown_text([] { AxisSet::parse("dp+tp+dp"); }),
            "axis dp is named twice in \"dp+tp+dp\"\nname each axis once");
  for (const char* text : {"", "+", "dp+", "+dp", "dp,tp", "none"}) {
    EXPECT_THROW(AxisSet::parse(text), ConfigError) << text;
  }
}

TEST(AxisSet, CombinesLikeASet) {
  constexpr AxisSet data = {Axis::dp, Axis::fsdp};
  static_assert((data | Axis::tp).contains(Axis::tp));
  static_assert((data & Axis::dp) == Axis::dp);
  static_assert((data - Axis::dp) == Axis::fsdp);
  static_assert(kMeshAxes.contains(data) && !kMeshAxes.contains(Axis::ep));
  static_assert(data.contains(AxisSet()) && AxisSet().empty());
}

TEST(AxisOrder, IsTheDefaultWhenNothingIsSaid) {
  EXPECT_EQ(parse_order("", kMeshAxes), kDefaultOrder);
  EXPECT_EQ(parse_order("  ", kMeshAxes), kDefaultOrder);
  EXPECT_EQ(order_text(kDefaultOrder), "pp,dp,fsdp,cp,tp");
}

TEST(AxisOrder, LeftOutAxesFollowTheirDefaultPredecessor) {
  EXPECT_EQ(order_text(parse_order("pp,tp,dp", {})), "pp,tp,dp,fsdp,cp");
  EXPECT_EQ(order_text(parse_order("dp, pp ,tp", {})), "dp,fsdp,cp,pp,tp");
  EXPECT_EQ(order_text(parse_order("tp", {})), "pp,dp,fsdp,cp,tp");
  EXPECT_EQ(parse_order("dp,tp", {}), kDefaultOrder);
}

TEST(AxisOrder, ShortTextLeavesOutWhatCanBeCompleted) {
  EXPECT_EQ(short_order_text(kDefaultOrder, kMeshAxes), "");
  EXPECT_EQ(short_order_text(parse_order("pp,tp,dp", {}), {Axis::pp, Axis::tp, Axis::dp}), "pp,tp,dp");
  EXPECT_EQ(short_order_text(parse_order("tp,cp,fsdp,dp,pp", {}), kMeshAxes, ':'), "tp:cp:fsdp:dp:pp");
}

TEST(AxisOrder, RefusesAnOrderThatLeavesOutAnAxisInUse) {
  EXPECT_EQ(thrown_text([] { parse_order("pp,tp", {Axis::pp, Axis::tp, Axis::dp}); }),
            "order \"pp,tp\" leaves out dp, which has a degree above 1\nset the order to pp,tp,dp");
}

TEST(AxisOrder, RefusesAnAxisNamedTwice) {
  EXPECT_EQ(thrown_text([] { parse_order("pp,tp,pp", {Axis::dp}); }),
            "order \"pp,tp,pp\" names pp twice\nset the order to pp,tp,dp");
}

TEST(AxisOrder, RefusesEp) {
  EXPECT_EQ(thrown_text([] { parse_order("pp,ep,tp", {}); }),
            "order \"pp,ep,tp\" names ep, which is a second view of the same ranks and has no place of its own\n"
            "set the order to pp,tp");
  EXPECT_NE(thrown_text([] { parse_order("ep", {}); }).find("set the order to pp,dp,fsdp,cp,tp"), std::string::npos);
}

TEST(AxisOrder, RefusesEmptyPlacesAndUnknownNames) {
  EXPECT_EQ(thrown_text([] { parse_order("pp,,tp", {}); }),
            "order \"pp,,tp\" has an empty place\nwrite axes with one ',' between them, such as pp,dp,fsdp,cp,tp");
  for (const char* text : {",", "pp,", "pp tp", "pp;tp", "pp=2", "x"}) EXPECT_THROW(parse_order(text, {}), ConfigError);
}

}  // namespace axis_test
}  // namespace orthant
