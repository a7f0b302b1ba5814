#include "orthant/base/json_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error_text.h"

namespace orthant {
namespace json_reader_test {

JsonReader reader_of(std::string_view text) {
  return JsonReader(JsonDocument::parse(text, {.source = "train.json"}));
}

template <typename T>
std::string refusal(std::string_view text) {
  return error_text<ConfigError>([&] { reader_of(text).require<T>("x"); });
}

TEST(JsonReader, ReadsEveryType) {
  auto reader = reader_of(R"({"b": true, "i": -3, "l": 9223372036854775807, "u": 18446744073709551615, "d": 2.5,
                              "s": "text", "is": [1, 2], "ls": [3], "ds": [1, 0.5], "ss": ["a", "b"]})");
  EXPECT_EQ(reader.require<bool>("b"), true);
  EXPECT_EQ(reader.require<int>("i"), -3);
  EXPECT_EQ(reader.require<std::int64_t>("l"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(reader.require<std::uint64_t>("u"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(reader.require<double>("d"), 2.5);
  EXPECT_EQ(reader.require<double>("i"), -3.0);
  EXPECT_EQ(reader.require<std::string>("s"), "text");
  EXPECT_EQ(reader.require<std::vector<int>>("is"), (std::vector<int>{1, 2}));
  EXPECT_EQ(reader.require<std::vector<std::int64_t>>("ls"), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(reader.require<std::vector<double>>("ds"), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(reader.require<std::vector<std::string>>("ss"), (std::vector<std::string>{"a", "b"}));
  reader.finish();
}

TEST(JsonReader, TakesTheDefaultOfAMissingKey) {
  auto reader = reader_of("{}");
  EXPECT_EQ(reader.get<int>("x", 7), 7);
  EXPECT_EQ(reader.get<std::string>("y", "adamw"), "adamw");
  EXPECT_EQ(reader.object("model").get<double>("z", 0.5), 0.5);
}

TEST(JsonReader, FindsNothingForMissingKeysAndNull) {
  auto reader = reader_of(R"({"a": null, "b": 1})");
  EXPECT_EQ(reader.find<int>("a"), std::nullopt);
  EXPECT_EQ(reader.find<int>("b"), 1);
  EXPECT_EQ(reader.find<int>("c"), std::nullopt);
}

TEST(JsonReader, SaysWhatWasFoundAndWhatWasExpected) {
  EXPECT_EQ(refusal<int>("{\n  \"x\": \"abc\"}"), "train.json:2:8: x: expected an integer, found the string \"abc\"");
  EXPECT_EQ(refusal<int>(R"({"x": 1.0})"), "train.json:1:7: x: expected an integer, found the number 1.0");
  EXPECT_EQ(refusal<bool>(R"({"x": 1})"), "train.json:1:7: x: expected true or false, found the number 1");
  EXPECT_EQ(refusal<double>(R"({"x": "NaN"})"), "train.json:1:7: x: expected a number, found the string \"NaN\"");
  EXPECT_EQ(refusal<double>(R"({"x": null})"), "train.json:1:7: x: expected a number, found null");
  EXPECT_EQ(refusal<std::string>(R"({"x": false})"), "train.json:1:7: x: expected a string, found false");
  EXPECT_EQ(refusal<std::string>(R"({"x": {}})"), "train.json:1:7: x: expected a string, found an object");
  EXPECT_EQ(refusal<std::uint64_t>(R"({"x": [1]})"),
            "train.json:1:7: x: expected a non-negative integer, found an array of 1 element");
  EXPECT_EQ(refusal<std::vector<int>>(R"({"x": 3})"),
            "train.json:1:7: x: expected an array, each element an integer, found the number 3");
}

TEST(JsonReader, NamesTheElementOfAnArrayThatIsWrong) {
  EXPECT_EQ(refusal<std::vector<int>>("{\"x\": [1,\n  2, \"c\"]}"),
            "train.json:2:6: x.2: expected an integer, found the string \"c\"");
}

TEST(JsonReader, RefusesIntegersThatDoNotFit) {
  EXPECT_EQ(refusal<int>(R"({"x": 3000000000})"),
            "train.json:1:7: x: expected an integer from -2147483648 to 2147483647, found the number 3000000000");
  EXPECT_EQ(refusal<std::uint64_t>(R"({"x": -1})"),
            "train.json:1:7: x: expected an integer from 0 to 18446744073709551615, found the number -1");
  EXPECT_EQ(refusal<std::int64_t>(R"({"x": 9223372036854775808})"),
            "train.json:1:7: x: expected an integer from -9223372036854775808 to 9223372036854775807, found the number "
            "9223372036854775808");
  EXPECT_EQ(refusal<std::int64_t>(R"({"x": 100000000000000000000})"),
            "train.json:1:7: x: expected an integer, found the number 1e+20");
}

TEST(JsonReader, ShowsOnlyTheBeginningOfALongString) {
  EXPECT_LT(refusal<int>("{\"x\": \"" + std::string(100'000, 'a') + "\"}").size(), 200u);
}

TEST(JsonReader, NamesTheMissingKeyAndItsType) {
  EXPECT_EQ(
      error_text<ConfigError>([] { reader_of("{\n  \"model\": {}\n}").require_object("model").require<int>("size"); }),
      "train.json:2:12: missing key model.size (an integer)\n  fix: add \"size\"");
  EXPECT_EQ(error_text<ConfigError>([] { reader_of("{}").require_object("model"); }),
            "train.json:1:1: missing key model (an object)\n  fix: add \"model\"");
}

TEST(JsonReader, SuggestsToRenameAMistypedRequiredKey) {
  EXPECT_EQ(refusal<int>(R"({"X": 3})"), "train.json:1:1: missing key x (an integer)\n  fix: rename \"X\" to \"x\"");
}

TEST(JsonReader, NamesTheNearestKeyForAnUnknownOne) {
  auto reader = reader_of("{\"model\": {\n  \"hidden_size\": 3,\n  \"num-layer\": 4}}");
  auto model = reader.object("model");
  model.get<int>("hidden_size", 1);
  model.get<int>("num_layers", 1);
  const std::string expected = "train.json:3:3: unknown key model.num-layer\n  fix: use \"num_layers\"";
  EXPECT_EQ(error_text<ConfigError>([&] { model.finish(); }), expected);
  EXPECT_EQ(error_text<ConfigError>([&] { reader.finish(); }), expected) << "the root answers for what it opened";
}

TEST(JsonReader, ListsTheValidKeysWhenNoneIsNear) {
  auto reader = reader_of(R"({"zebra": 3})");
  reader.get<int>("rate", 1);
  reader.get<int>("steps", 1);
  EXPECT_EQ(error_text<ConfigError>([&] { reader.finish(); }),
            "train.json:1:2: unknown key zebra\n  fix: use one of: rate, steps");
  EXPECT_EQ(error_text<ConfigError>([] { reader_of(R"({"zebra": 3})").finish(); }),
            "train.json:1:2: unknown key zebra\n  fix: remove it: no key is valid here");
}

TEST(JsonReader, AcceptsCommentsInEveryObject) {
  auto reader = reader_of(R"({"_comment": "of all", "model": {"_comments": {"a": 1}, "_comment_size": 2}})");
  reader.object("model").get<int>("size", 1);
  EXPECT_NO_THROW(reader.finish());
  auto near = reader_of(R"({"comment": "x"})");
  EXPECT_EQ(error_text<ConfigError>([&] { near.finish(); }),
            "train.json:1:2: unknown key comment\n  fix: remove it: no key is valid here");
}

TEST(JsonReader, LetsTwoReadersShareASubObject) {
  auto reader = reader_of(R"({"model": {"a": 1, "b": 2}})");
  reader.object("model").require<int>("a");
  reader.object("model").require<int>("b");
  EXPECT_NO_THROW(reader.finish());
}

TEST(JsonReader, ReadsArraysOfObjects) {
  auto reader = reader_of("{\"sources\": [{\"path\": \"a\"},\n {\"path\": \"b\", \"weigth\": 2}]}");
  std::vector<std::string> paths;
  for (auto& source : reader.objects("sources")) {
    paths.push_back(source.require<std::string>("path"));
    source.get<double>("weight", 1.0);
  }
  EXPECT_EQ(paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(error_text<ConfigError>([&] { reader.finish(); }),
            "train.json:2:16: unknown key sources.1.weigth\n  fix: use \"weight\"");
  EXPECT_TRUE(reader.objects("others").empty());
}

TEST(JsonReader, RefusesOtherValuesForObjects) {
  EXPECT_EQ(error_text<ConfigError>([] { reader_of(R"({"model": 3})").object("model"); }),
            "train.json:1:11: model: expected an object, found the number 3");
  EXPECT_EQ(error_text<ConfigError>([] { reader_of(R"({"x": {}})").objects("x"); }),
            "train.json:1:7: x: expected an array of objects, found an object");
  EXPECT_EQ(error_text<ConfigError>([] { reader_of(R"({"x": [{}, 2]})").objects("x"); }),
            "train.json:1:12: x.1: expected an object, found the number 2");
  EXPECT_EQ(error_text<ConfigError>([] { reader_of("[1, 2]"); }),
            "train.json:1:1: expected an object, found an array of 2 elements");
}

TEST(JsonReader, TakesARawValueWhole) {
  auto reader = reader_of(R"({"extra": {"anything": [1]}})");
  EXPECT_EQ(reader.require_raw("extra")["anything"][0], 1);
  EXPECT_NO_THROW(reader.finish());
}

TEST(JsonReader, KnowsKeysWithoutReadingThem) {
  auto reader = reader_of(R"({"b": 1, "a": 2})");
  EXPECT_TRUE(reader.has("a"));
  EXPECT_FALSE(reader.has("c"));
  EXPECT_FALSE(reader.is_null("a"));
  EXPECT_FALSE(reader.is_null("c"));
  EXPECT_EQ(reader.keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_THROW(reader.finish(), ConfigError);
}

TEST(JsonReader, FailsAtTheValueForRulesOfItsCaller) {
  auto reader = reader_of("{\"model\": {\n  \"heads\": 3}}");
  EXPECT_EQ(error_text<ConfigError>(
                [&] { reader.object("model").fail("heads", "3 does not divide hidden_size 64", "use 2 or 4"); }),
            "train.json:2:12: model.heads: 3 does not divide hidden_size 64\n  fix: use 2 or 4");
}

TEST(JsonReader, ThrowsTheDocumentsKindOfError) {
  const auto document = JsonDocument::parse(R"({"x": 1, "y": 2})", {.source = "m", .errors = JsonErrorKind::kData});
  JsonReader reader(document);
  EXPECT_THROW(reader.require<std::string>("x"), DataError);
  EXPECT_THROW(reader.require<int>("z"), DataError);
  EXPECT_THROW(reader.fail("x", "bad"), DataError);
  EXPECT_THROW(reader.finish(), DataError);
}

TEST(JsonReader, ListsEveryValueReadWithItsOrigin) {
  auto document = JsonDocument::parse("{\"steps\": 10,\n  \"model\": {\n  \"size\": 64}}", {.source = "train.json"});
  document.apply_override("model.heads=4");
  JsonReader reader(document);
  reader.require<int>("steps");
  auto model = reader.object("model");
  model.require<int>("size");
  model.get<int>("heads", 2);
  model.get<std::string>("kind", "dense");
  model.get<int>("size", 1);
  model.find<double>("dropout");
  std::string listed;
  for (const auto& entry : document.entries()) listed += entry.key + " " + entry.value + " " + entry.origin + "\n";
  EXPECT_EQ(listed,
            "steps 10 train.json:1\n"
            "model.size 64 train.json:3\n"
            "model.heads 4 --set model.heads=4\n"
            "model.kind \"dense\" default\n"
            "model.dropout null default\n");
}

TEST(JsonReader, OutlivesItsDocument) {
  auto model = reader_of(R"({"model": {"size": 64}})").object("model");
  EXPECT_EQ(model.path(), "model");
  EXPECT_EQ(model.require<int>("size"), 64);
}

}  // namespace json_reader_test
}  // namespace orthant
