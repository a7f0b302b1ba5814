#include "orthant/text/tokenizer_json.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "text/small_bpe.h"

namespace orthant {
namespace tokenizer_json_test {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

std::string refusal(std::string_view text) {
  return error_text<DataError>([&] { tokenizer_from_json(text, "t.json"); });
}

// The error after one value of the small tokenizer was set.
std::string refusal(const std::string& pointer, const json& value) {
  auto file = small_bpe();
  file[json::json_pointer(pointer)] = value;
  return refusal(file.dump());
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(TokenizerJson, KnowsTheRolesOfTokens) {
  auto file = small_bpe();
  file["added_tokens"] = nlohmann::json::array(
      {added_token("<s>", 266), added_token("</s>", 267), added_token("<mask>", 268, {{"lstrip", true}})});
  const auto special = tokenizer_of(file).special();
  EXPECT_EQ(special.begin, 266);
  EXPECT_EQ(special.end, 267);
  EXPECT_EQ(special.mask, 268);
  EXPECT_EQ(special.pad, std::nullopt);
  TokenizerRoles roles;
  roles.tokens = {{"pad_token", "</s>"}, {"bos_token", "hello"}};
  const auto other = Tokenizer(tokenizer_from_json(file.dump(), "t.json", roles)).special();
  EXPECT_EQ(other.pad, 267);
  EXPECT_EQ(other.begin, 259);
}

TEST(TokenizerJson, ReadsPostProcessors) {
  auto file = small_bpe();
  file["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "h", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
     "pair": [{"SpecialToken": {"id": "h", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "two", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
     "special_tokens": {"h": {"id": "h", "ids": [104], "tokens": ["h"]}, "two": {"id": "two", "ids": [1, 2], "tokens": ["a", "b"]}}}]})");
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.encode("hello"), (Ids{104, 259}));
  EXPECT_EQ(tokenizer.encode("hello", {.special = false}), Ids{259});
  const auto pair = tokenizer.encode_pair("a", "hello");
  EXPECT_EQ(pair.ids, (Ids{104, 'a', 1, 2, 259}));
  EXPECT_EQ(pair.types, (Ids{0, 0, 1, 1, 1}));
  file["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 0}}};
  EXPECT_EQ(tokenizer_of(file).encode("a"), (Ids{0, 'a', 2}));
}

TEST(TokenizerJson, SkipsSpecialTokensOnlyWhenAsked) {
  auto file = small_bpe();
  file["added_tokens"] =
      nlohmann::json::array({added_token("<s>", 266), added_token("<user>", 267, {{"special", false}})});
  const auto tokenizer = tokenizer_of(file);
  const auto ids = tokenizer.encode("a<s><user>b");
  EXPECT_EQ(ids, (Ids{'a', 266, 267, 'b'}));
  EXPECT_EQ(tokenizer.decode(ids), "a<s><user>b");
  EXPECT_EQ(tokenizer.decode(ids, true), "a<user>b");
}

TEST(TokenizerJson, NormalisesText) {
  auto file = small_bpe();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("HE\u0301llo \xff\u0130")), "h\u00e9llo \xffi\u0307");
}

TEST(TokenizerJson, RunsStepsInOrder) {
  auto file = small_bpe();
  file["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"String": "ll"}, "behavior": "Removed", "invert": false},
    {"type": "Digits", "individual_digits": true},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  EXPECT_EQ(tokenizer_of(file).encode("hello12"), (Ids{256, 'o', '1', '2'}));
}

TEST(TokenizerJson, RefusesOtherKindsByName) {
  expect_part(refusal("/model/type", "WordLevel"), "t.json: model.type is \"WordLevel\", which is not read");
  expect_part(refusal("/model/type", "WordLevel"), "BPE (GPT-2, Llama, Mistral, ...), Unigram (T5, XLM-R, ...) and");
  expect_part(refusal("/pre_tokenizer/type", "Metaspaces"), "pre_tokenizer.type is \"Metaspaces\", which is not read");
  expect_part(refusal("/normalizer", {{"type", "Precompile"}}), "normalizer.type is \"Precompile\"");
  expect_part(refusal("/post_processor", {{"type", "Other"}}), "post_processor.type is \"Other\"");
  expect_part(refusal("/decoder/type", "Metaspace"), "decoder.type is \"Metaspace\"");
  expect_part(refusal("/model/dropout", 0.1), "model.dropout makes ids random");
  expect_part(refusal("/model/byte_fallback", true), "model.byte_fallback is true in a model over bytes");
  expect_part(refusal("/model/merges", "h e"), "model.merges is no list");
  expect_part(refusal("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix is \"</w>\"");
  expect_part(refusal("/model/continuing_subword_prefix", "##"), "model.continuing_subword_prefix is \"##\"");
}

TEST(TokenizerJson, RefusesDamagedFiles) {
  expect_part(refusal("{\"model\":\n {"), "t.json:2:3: this is not JSON");
  expect_part(refusal(""), "this is not JSON");
  expect_part(refusal("[1]"), "the whole is an array");
  expect_part(refusal("{}"), "there is no model in it");
  expect_part(refusal(R"({"model": {"type": "BPE", "vocab": {}, "merges": []}})"), "model.vocab has no tokens");
  expect_part(refusal(R"({"a": 1, "a": 2})"), "is given twice");
  expect_part(refusal(std::string(100000, '[')), "nested deeper than 64 levels");
  expect_part(refusal("{\"a\":" + std::string(100000, '[')), "nested deeper than 64 levels");
  expect_part(refusal(R"({"model": {"vocab": )" + std::string(100000, '[')), "is not a token with its score");
  expect_part(refusal("/model/merges/0", 3), "merge 0 is not a pair of two tokens");
  expect_part(refusal("/model/merges/1", {"a", "b", "c"}), "merge 1 is not a pair of two tokens");
  expect_part(refusal("/model/merges/1", {"a", json::array()}), "merge 1 is not a pair of two tokens");
  expect_part(refusal("/model/merges/2", "abc"), "merge 2 is \"abc\"");
  expect_part(refusal("/pre_tokenizer/add_prefix_space", 1),
              "pre_tokenizer.add_prefix_space is the number 1; expected true");
}

TEST(TokenizerJson, RefusesIdsThatCannotBe) {
  expect_part(refusal("/model/vocab/h", -1), "token \"h\" has the id -1");
  expect_part(refusal("/model/vocab/h", 1LL << 40), "ids are between 0 and 4194303");
  expect_part(refusal("/model/vocab/h", 18446744073709551615ULL), "token \"h\" has the id 9223372036854775807");
  expect_part(refusal("/model/vocab/h", 1.5), "the id of token the string \"h\" is the number 1.5");
  expect_part(refusal("/model/vocab/h", json::array()), "the id of token the string \"h\" is an");
  expect_part(refusal("/model/vocab/h", int{'i'}), "have the same id 105");
  expect_part(refusal(R"({"model": {"type": "BPE", "vocab": {"a": 1, "a": 2}, "merges": []},
                         "pre_tokenizer": {"type": "ByteLevel"}})"),
              "token \"a\" is given twice, with ids 1 and 2");
  expect_part(refusal("/added_tokens", json::array({added_token("<x>", -2)})), "added_tokens.0.id is -2");
  expect_part(refusal("/added_tokens", json::array({added_token("<x>", 5)})), "gives \"<x>\" the id 5 of");
  expect_part(refusal("/added_tokens", json::array({added_token("hello", 5)})),
              "gives \"hello\" the id 5, the vocabulary 259");
  expect_part(refusal("/added_tokens", json::array({added_token("<x>", 300), added_token("<y>", 300)})),
              "gives \"<y>\" the id 300 of \"<x>\"");
  expect_part(refusal("/post_processor", {{"type", "BertProcessing"}, {"sep", {"x", -1}}, {"cls", {"y", 1}}}),
              "has the id -1");
}

TEST(TokenizerJson, IdsMayHaveHoles) {
  auto file = small_bpe();
  file["model"]["vocab"]["x9"] = 1000;
  file["added_tokens"] = nlohmann::json::array({added_token("<x>", 2000)});
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.vocab_size(), 2001);
  EXPECT_EQ(tokenizer.encode("<x>"), Ids{2000});
  expect_part(error_text<DataError>([&] { tokenizer.decode(Ids{500}); }), "id 500 is not in the vocabulary");
}

}  // namespace tokenizer_json_test
}  // namespace orthant
