#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "orthant/base/json_document.h"
#include "orthant/base/json_reader.h"

namespace orthant {
namespace json_override_test {

constexpr std::string_view kText = R"({
  "model": {"size": 64, "name": "tiny"},
  "layers": [{"kind": "dense"}, {"kind": "sparse"}],
  "rate": null
})";

JsonDocument overridden(std::string_view assignment) {
  auto document = JsonDocument::parse(kText, {.source = "train.json"});
  document.apply_override(assignment);
  return document;
}

std::string refusal(std::string_view assignment) {
  return error_text<ConfigError>([&] { overridden(assignment); });
}

TEST(JsonOverride, ReplacesAValueAndRecordsItsOrigin) {
  const auto document = overridden("model.size=128");
  auto model = JsonReader(document).object("model");
  EXPECT_EQ(model.require<int>("size"), 128);
  EXPECT_EQ(model.origin("size"), "--set model.size=128");
  EXPECT_EQ(model.origin("name"), "train.json:2");
}

TEST(JsonOverride, TakesJsonAsJsonAndTheRestAsText) {
  EXPECT_EQ(overridden("x=true").value()["x"], true);
  EXPECT_EQ(overridden("x=[1, 2]").value()["x"], nlohmann::json::parse("[1, 2]"));
  EXPECT_EQ(overridden("x=\"3\"").value()["x"], "3");
  EXPECT_EQ(overridden("x=adamw").value()["x"], "adamw");
  EXPECT_EQ(overridden("x=a=b").value()["x"], "a=b");
  EXPECT_EQ(overridden("x=").value()["x"], "");
  EXPECT_EQ(overridden("x=NaN").value()["x"], "NaN");
  EXPECT_EQ(overridden("x=[1, 2").value()["x"], "[1, 2");
}

TEST(JsonOverride, ReachesIntoArrays) {
  EXPECT_EQ(overridden("layers.1.kind=dense").value()["layers"][1]["kind"], "dense");
  EXPECT_EQ(overridden("layers.0={}").value()["layers"][0], nlohmann::json::object());
}

TEST(JsonOverride, MakesMissingObjects) {
  EXPECT_EQ(overridden("train.optimizer.rate=0.1").value()["train"]["optimizer"]["rate"], 0.1);
  EXPECT_EQ(overridden("rate.peak=0.1").value()["rate"]["peak"], 0.1);
}

TEST(JsonOverride, CoversTheOriginsOfWhatItReplaces) {
  const auto document = overridden(R"(model={"size": 1})");
  EXPECT_EQ(JsonReader(document).object("model").origin("size"), R"(--set model={"size": 1})");
}

TEST(JsonOverride, IsOverriddenByTheNext) {
  auto document = overridden("model.size=1");
  document.apply_override("model.size=2");
  EXPECT_EQ(document.value()["model"]["size"], 2);
}

TEST(JsonOverride, IsNamedInErrors) {
  const auto wrong_type = overridden("model.size=big");
  EXPECT_EQ(error_text<ConfigError>([&] { JsonReader(wrong_type).object("model").require<int>("size"); }),
            "--set model.size=big: model.size: expected an integer, found the string \"big\"\n"
            "  fix: give model.size an integer");
  const auto unknown = overridden("modle.size=3");
  EXPECT_EQ(error_text<ConfigError>([&] {
              JsonReader reader(unknown);
              reader.object("model");
              for (const char* key : {"layers", "rate"}) reader.require_raw(key);
              reader.finish();
            }),
            "--set modle.size=3: unknown key modle\n  fix: use \"model\"");
}

TEST(JsonOverride, ShowsHowToQuoteTextThatLooksLikeJson) {
  const auto document = overridden("model.name=123");
  EXPECT_EQ(error_text<ConfigError>([&] { JsonReader(document).object("model").require<std::string>("name"); }),
            "--set model.name=123: model.name: expected a string, found the number 123\n"
            "  fix: quote it: 'model.name=\"123\"'");
}

TEST(JsonOverride, RefusesWhatIsNoAssignment) {
  for (const char* assignment : {"", "model.size", "=3", "model..size=3", ".size=3", "model.=3"}) {
    EXPECT_EQ(refusal(assignment), "--set " + std::string(assignment) +
                                       ": not an assignment to a key\n"
                                       "  fix: write --set key=value, such as model.hidden_size=128");
  }
}

TEST(JsonOverride, RefusesAnElementThatTheArrayDoesNotHave) {
  EXPECT_EQ(refusal("layers.2.kind=x"),
            "--set layers.2.kind=x: layers is an array of 2 elements, it has no element \"2\"\n"
            "  fix: use an index from 0 to 1");
  EXPECT_EQ(refusal("layers.-1=x"),
            "--set layers.-1=x: layers is an array of 2 elements, it has no element \"-1\"\n"
            "  fix: use an index from 0 to 1");
  EXPECT_FALSE(refusal("layers.99999999999999999999=x").empty());
  EXPECT_FALSE(refusal("layers.first=x").empty());
}

TEST(JsonOverride, RefusesAPathThroughAValue) {
  EXPECT_EQ(refusal("model.size.x=1"),
            "--set model.size.x=1: model.size is the number 64, not an object\n"
            "  fix: set a key that lies in an object or an array");
}

TEST(JsonOverride, RefusesIllFormedUtf8) {
  EXPECT_EQ(refusal("a=\xff"), "--set: the assignment is not valid UTF-8\n  fix: write it in UTF-8");
}

TEST(JsonOverride, BoundsTheDepthOfPathsAndValues) {
  std::string path = "a";
  std::string nested;
  for (int i = 0; i < 10'000; ++i) {
    path += ".a";
    nested += "[";
  }
  EXPECT_FALSE(refusal(path + "=1").empty());
  EXPECT_EQ(overridden("x=" + nested).value()["x"], nested);
}

TEST(JsonOverride, ComesBeforeReading) {
  auto document = overridden("a=1");
  JsonReader reader(document);
  EXPECT_EQ(error_text<InternalError>([&] { document.apply_override("a=2"); }),
            "an override came after the document was read");
}

TEST(JsonDocument, ARemovedKeyIsAsIfNobodyHadWrittenIt) {
  auto document = JsonDocument::parse(R"({"a": {"b": 1, "c": {"d": 2}}, "e": 3})");
  document.remove("a.c");
  document.remove("a.missing.key");
  document.remove("e");
  JsonReader reader(document);
  auto inner = reader.object("a");
  EXPECT_EQ(inner.get<std::int64_t>("b", 0), 1);
  EXPECT_FALSE(inner.has("c"));
  EXPECT_EQ(reader.origin("e"), "default");
  EXPECT_NO_THROW(reader.finish());
}

}  // namespace json_override_test
}  // namespace orthant
