// What the strict parser accepts and how it refuses the rest.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "orthant/base/json_document.h"

namespace orthant {
namespace json_parser_test {

JsonDocument parsed(std::string_view text) {
  return JsonDocument::parse(text, {.source = "train.json"});
}

std::string refusal(std::string_view text) {
  return error_text<ConfigError>([&] { parsed(text); });
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(JsonParser, KeepsValuesOfEveryType) {
  const auto document = parsed(R"({"a": [1, -2, 3.5, true, null], "b": {"c": "d"}})");
  EXPECT_EQ(document.value(), nlohmann::json::parse(R"({"a": [1, -2, 3.5, true, null], "b": {"c": "d"}})"));
}

TEST(JsonParser, AcceptsAByteOrderMark) {
  EXPECT_EQ(parsed("\xef\xbb\xbf{\"a\": 1}").value()["a"], 1);
}

TEST(JsonParser, SaysWhereTheTextIsBroken) {
  EXPECT_EQ(
      refusal("{\n  \"model\": {\n    \"size\": 12x\n  }\n}"),
      "train.json:3:15: at model: syntax error while parsing object - invalid literal; last read: '12x'; expected '}'");
  EXPECT_EQ(refusal("[nul]"), "train.json:1:5: syntax error while parsing value - invalid literal; last read: '[nul]'");
}

TEST(JsonParser, RefusesEveryTruncationOfAValidText) {
  const std::string text = R"({"a": [1, {"b": "cA"}], "d": -1.5e3, "e": true})";
  for (std::size_t length = 0; length < text.size(); ++length) {
    const std::string message = refusal(text.substr(0, length));
    ASSERT_TRUE(message.starts_with("train.json:1:")) << message;
  }
}

TEST(JsonParser, RefusesEveryReplacedByteOrReadsIt) {
  const std::string text = R"({"a": [1, {"b": "cA"}], "d": -1.5e3, "e": true})";
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      try {
        parsed(changed);
      } catch (const ConfigError&) {
      }
    }
  }
}

TEST(JsonParser, RefusesAnEmptyText) {
  for (const auto* text : {"", " \n\t ", "\xef\xbb\xbf"})
    EXPECT_EQ(refusal(text),
              "train.json:1:1: empty; expected JSON\n  fix: name a file that holds JSON, or write {} into it");
}

TEST(JsonParser, RefusesComments) {
  const std::string message = refusal("{\n  // size\n  \"a\": 1}");
  EXPECT_TRUE(message.starts_with("train.json:2:3: ")) << message;
  EXPECT_TRUE(message.ends_with("\n  fix: JSON has no comments: remove it")) << message;
}

TEST(JsonParser, RefusesTrailingCommasAndText) {
  EXPECT_TRUE(refusal("{\"a\": 1,}").starts_with("train.json:1:9: "));
  EXPECT_TRUE(refusal("[1, 2,]").starts_with("train.json:1:7: "));
  EXPECT_TRUE(refusal("{} {}").starts_with("train.json:1:4: "));
}

TEST(JsonParser, RefusesDuplicateKeys) {
  EXPECT_EQ(refusal("{\"model\": {\n  \"size\": 1,\n  \"size\": 2}}"),
            "train.json:3:3: duplicate key model.size, first given in line 2\n  fix: keep one of them");
  EXPECT_EQ(refusal(R"([{"a/b": 1}, {"a/b": 1, "a\/b": 2}])"),
            "train.json:1:25: duplicate key 1.a/b, first given in line 1\n  fix: keep one of them");
}

TEST(JsonParser, TellsKeysWithDotsAndSlashesFromPaths) {
  EXPECT_EQ(parsed(R"({"a.b": 1, "a": {"b": 2}, "a/b": 3, "a~1b": 4})").value().size(), 4u);
}

TEST(JsonParser, RefusesNumbersBeyondADouble) {
  EXPECT_EQ(refusal("{\"rate\": 1e999}"), "train.json:1:14: at rate: number overflow parsing '1e999'");
  EXPECT_TRUE(refusal(repeated("9", 500)).starts_with("train.json:1:500: number overflow parsing '999"));
}

TEST(JsonParser, RefusesNotANumberAndInfinity) {
  for (const char* text : {"NaN", "nan", "Infinity", "-Infinity", "+1", ".5", "1.", "01", "0x10", "1_000"}) {
    EXPECT_TRUE(refusal(text).starts_with("train.json:1:")) << text;
  }
}

TEST(JsonParser, RefusesDeepNesting) {
  EXPECT_EQ(refusal(repeated("[", 10'000)), "train.json:1:65: nested deeper than 64 levels");
  EXPECT_TRUE(refusal(repeated("{\"a\":", 10'000)).ends_with("nested deeper than 64 levels"));
  EXPECT_NO_THROW(parsed(repeated("[", 64) + repeated("]", 64)));
}

TEST(JsonParser, RefusesIllFormedUtf8AndEscapesItInTheMessage) {
  EXPECT_EQ(
      refusal("{\"a\": \"\xff\"}"),
      "train.json:1:8: at a: syntax error while parsing value - invalid string: ill-formed UTF-8 byte; last read: "
      "'\"\\xff'\n  fix: store the file as UTF-8");
  for (const char* text : {"\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"", R"("\ud800")"}) {
    EXPECT_TRUE(refusal(text).starts_with("train.json:1:")) << text;
  }
}

TEST(JsonParser, ShowsOnlyTheBeginningOfALongToken) {
  EXPECT_LT(refusal("\"" + repeated("a", 100'000)).size(), 300u);
}

TEST(JsonParser, RefusesTextsBeyondItsLimit) {
  EXPECT_EQ(error_text<ConfigError>([] { JsonDocument::parse("[1, 2, 3]", {.source = "x", .max_bytes = 8}); }),
            "x: longer than 8 bytes");
}

TEST(JsonParser, ThrowsDataErrorsWhenAsked) {
  EXPECT_EQ(
      error_text<DataError>([] { JsonDocument::parse("[", {.source = "m.json", .errors = JsonErrorKind::kData}); }),
      "m.json:1:2: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal");
}

class JsonFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string written(const std::string& text) const {
    std::ofstream(folder_ + "/x.json") << text;
    return folder_ + "/x.json";
  }

  std::string folder_ = testing::TempDir() + "orthant_json_test_" + std::to_string(getpid()) + "_" +
                        testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(JsonFile, IsLoaded) {
  EXPECT_EQ(JsonDocument::load(written("{\"a\": 1}")).value()["a"], 1);
}

TEST_F(JsonFile, IsNamedInErrors) {
  const std::string path = written("{\n");
  EXPECT_TRUE(error_text<ConfigError>([&] { JsonDocument::load(path); }).starts_with(path + ":2:1: "));
}

TEST_F(JsonFile, MustExist) {
  EXPECT_EQ(error_text<ConfigError>([&] { JsonDocument::load(folder_ + "/no.json"); }),
            "cannot read " + folder_ +
                "/no.json: No such file or directory\n  fix: name a JSON file that exists and can be read");
}

TEST_F(JsonFile, MustNotBeAFolder) {
  EXPECT_EQ(error_text<DataError>([&] { JsonDocument::load(folder_, {.errors = JsonErrorKind::kData}); }),
            "cannot read " + folder_ + ": it is a folder\n  fix: name a JSON file");
}

TEST(JsonDocument, RefusesAnEndlessFile) {
  EXPECT_EQ(error_text<ConfigError>([] { JsonDocument::load("/dev/zero", {.max_bytes = 1 << 20}); }),
            "cannot read /dev/zero: it is a device, not a regular file\n  fix: name a JSON file");
}

TEST(JsonParser, RefusesMoreValuesThanItsLimitOfMemory) {
  const JsonOptions options{.source = "x", .max_tree_bytes = 1 << 20};
  const auto text = [&](const std::string& document) {
    return error_text<ConfigError>([&] { JsonDocument::parse(document, options); });
  };
  EXPECT_EQ(text("[" + repeated("1,", 100'000) + "1]").substr(0, 44), "x:1:12722: more values than fit into 1 MiB\n ");
  EXPECT_EQ(text("{\"" + repeated("k", 60'000) + "\": [" + repeated("1,", 100) + "1]}").substr(0, 44),
            "x:1:60039: more values than fit into 1 MiB\n ")
      << "each value has the path of its key";
  EXPECT_EQ(text("{\"" + repeated("k", 500'000) + "\": 1}"), "x:1:2: a key of 500000 bytes; keys have at most 65536");
}

}  // namespace json_parser_test
}  // namespace orthant
