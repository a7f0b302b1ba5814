#include "orthant/text/character_bpe.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/text/space_mark.h"
#include "text/small_bpe.h"

namespace orthant {
namespace character_bpe_test {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

// Laid out as Llama 2's: <unk>, <s>, </s>, 256 bytes, then the tokens below, merges as they are written.
json small_llama() {
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[token_of_byte(static_cast<unsigned char>(byte))] = 3 + byte;
  const std::vector<std::string> tokens = {"▁", "a", "b", "c", "ab", "▁ab", "abc", "▁▁"};
  for (const auto& token : tokens) vocabulary.emplace(token, vocabulary.size());
  return {{"added_tokens", json::array({added_token("<s>", 1), added_token("</s>", 2)})},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary},
            {"merges", {"a b", "▁ ab", "ab c", "▁ ▁"}}}}};
}

constexpr std::int32_t kMark = 259, kA = 260, kB = 261, kC = 262, kAb = 263, kMarkAb = 264, kAbc = 265, kMarks = 266;

TEST(CharacterBpe, MergesCharactersAndFallsBackToBytes) {
  const auto tokenizer = tokenizer_of(small_llama());
  EXPECT_EQ(tokenizer.kind(), "BPE");
  EXPECT_EQ(tokenizer.encode("ab"), Ids{kMarkAb});
  EXPECT_EQ(tokenizer.encode("cab ab"), (Ids{kMark, kC, kAb, kMarkAb}));
  EXPECT_EQ(tokenizer.encode("b   abc"), (Ids{kMark, kB, kMarks, kMarkAb, kC}));
  EXPECT_EQ(tokenizer.encode("\u00e9"), (Ids{kMark, 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(tokenizer.encode("\n\xff"), (Ids{kMark, 3 + 10, 3 + 0xef, 3 + 0xbf, 3 + 0xbd}));
  EXPECT_EQ(tokenizer.encode("a</s>a"), (Ids{kMark, kA, 2, kMark, kA}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_FALSE(tokenizer.may_be_cut());
}

TEST(CharacterBpe, DecodesAsItsFileSays) {
  const auto tokenizer = tokenizer_of(small_llama());
  for (const std::string text : {"ab cab", " a", "\u00e9\u4e2d", "a\n\nb", ""}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_EQ(tokenizer.decode(Ids{1, kMarkAb, 2}), "<s> ab</s>");
  EXPECT_EQ(tokenizer.decode(Ids{1, kMarkAb, 2}, true), "ab");
}

TEST(CharacterBpe, UnknownCharactersAreFusedOnlyWhenAskedTo) {
  auto file = small_llama();
  file["model"]["byte_fallback"] = false;
  EXPECT_EQ(tokenizer_of(file).encode("xya"), (Ids{kMark, 0, kA}));
  file["model"]["fuse_unk"] = false;
  EXPECT_EQ(tokenizer_of(file).encode("xya"), (Ids{kMark, 0, 0, kA}));
  file["model"].erase("unk_token");
  const auto text = error_text<DataError>([&] { (void)tokenizer_of(file).encode("ax"); });
  EXPECT_NE(text.find("the vocabulary has no token for \"x\", and no unk_token"), std::string::npos) << text;
}

TEST(CharacterBpe, BytesWithoutTokensAreUnknown) {
  auto file = small_llama();
  auto& vocabulary = file["model"]["vocab"];
  vocabulary["free"] = vocabulary["<0x78>"];
  vocabulary.erase("<0x78>");
  // As `tokenizers` has it, an unknown character waits for the next known one: bytes pass it.
  EXPECT_EQ(tokenizer_of(file).encode("xya"), (Ids{kMark, 3 + 'y', 0, kA}));
}

TEST(CharacterBpe, WordsThatAreTokensMayIgnoreMerges) {
  auto file = small_llama();
  file["model"]["merges"] = {"b c"};
  file["model"]["vocab"]["bc"] = 267;
  file["normalizer"] = nullptr;
  EXPECT_EQ(tokenizer_of(file).encode("abc"), (Ids{kA, 267}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(file).encode("abc"), Ids{kAbc});
}

TEST(CharacterBpe, MetaspaceMarksSpaces) {
  auto file = small_llama();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_EQ(tokenizer_of(file).encode("ab</s>ab ab"), (Ids{kMarkAb, 2, kAb, kMarkAb}));
  EXPECT_EQ(tokenizer_of(file).encode("</s>ab"), (Ids{2, kAb}));
  EXPECT_EQ(tokenizer_of(file).encode("ab", {.continues = true}), Ids{kAb});
  file["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_EQ(tokenizer_of(file).encode("ab</s>ab"), (Ids{kMarkAb, 2, kMarkAb}));
  EXPECT_EQ(tokenizer_of(file).encode(" ab"), Ids{kMarkAb});
  file["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(tokenizer_of(file).encode("a  a"), (Ids{kA, kMarks, kA}));
  file["pre_tokenizer"]["split"] = true;
  EXPECT_EQ(tokenizer_of(file).encode("a  a"), (Ids{kA, kMark, kMark, kA})) << "a word for every mark";
  file["pre_tokenizer"].erase("prepend_scheme");
  file["pre_tokenizer"]["add_prefix_space"] = false;
  EXPECT_EQ(tokenizer_of(file).encode("ab"), Ids{kAb});
}

// The whole text as one word, without cuts at marks: a merge that would cross one forbids them.
TEST(CharacterBpe, WordsAtMarksHaveTheIdsOfTheWholeText) {
  const auto words = tokenizer_of(small_llama());
  auto file = small_llama();
  file["model"]["vocab"]["c▁"] = 267;
  file["model"]["merges"].push_back("c ▁");  // of the lowest rank: it only shows where nothing else merges
  const auto whole = tokenizer_of(file);
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (auto i = random() % 30; i > 0; --i) text += "ab  x"[random() % 5];  // no c
    EXPECT_EQ(words.encode(text), whole.encode(text)) << text;
  }
  EXPECT_EQ(whole.encode("c a"), (Ids{kMark, 267, kA}));
}

TEST(CharacterBpe, KnowsWhereWordsBegin) {
  std::vector<std::string> words;
  for_each_marked_word("a▁▁b▁c", [&](std::string_view word) { words.emplace_back(word); });
  EXPECT_EQ(words, (std::vector<std::string>{"a", "▁▁b", "▁c"}));
  EXPECT_TRUE(has_mark_inside("a▁"));
  EXPECT_TRUE(has_mark_inside("▁a▁b"));
  EXPECT_FALSE(has_mark_inside("▁▁a"));
  EXPECT_FALSE(has_mark_inside(""));
}

TEST(CharacterBpe, RefusesSettingsThatItDoesNotRead) {
  const auto refusal = [](const std::string& pointer, const json& value) {
    auto file = small_llama();
    file[json::json_pointer(pointer)] = value;
    return error_text<DataError>([&] { tokenizer_from_json(file.dump(), "t.json"); });
  };
  const auto expect_part = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect_part(refusal("/model/unk_token", "none"), "t.json: unk_token \"none\" is not in the vocabulary");
  expect_part(refusal("/normalizer/normalizers/1/pattern/String", ""), "pattern.String is empty");
  expect_part(refusal("/normalizer/normalizers/1/type", "Nmt"), "normalizers.1.type is \"Nmt\"");
  expect_part(refusal("/decoder/decoders/0/content", std::string(65, 'x')), "decoders.0.content has 65 bytes");
  expect_part(refusal("/decoder/decoders/3/start", -1), "decoders.3.start is -1");
  expect_part(refusal("/decoder/decoders/3/content", "ab"), "decoders.3.content is \"ab\"");
  expect_part(refusal("/decoder/decoders/2/type", "CTC"), "decoders.2.type is \"CTC\"");
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  expect_part(
      refusal("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Whitespace"}}, metaspace}}}),
      "prepend_scheme is \"first\" behind another step that cuts the text");
  auto other = metaspace;
  other["add_prefix_space"] = false;
  expect_part(refusal("/pre_tokenizer", other), "add_prefix_space is false, but prepend_scheme is not \"never\"");
  other = metaspace;
  other["replacement"] = "__";
  expect_part(refusal("/pre_tokenizer", other), "replacement is \"__\"");
  other["replacement"] = "▁";
  other["prepend_scheme"] = "last";
  expect_part(refusal("/pre_tokenizer", other), "prepend_scheme is \"last\"");
  auto stripped = small_llama();
  stripped["normalizer"] = {{"type", "Strip"}};
  stripped["pre_tokenizer"] = metaspace;
  expect_part(error_text<DataError>([&] { tokenizer_of(stripped); }),
              "prepend_scheme is \"first\" behind a normalizer that may take the begin of a text away");
}

}  // namespace character_bpe_test
}  // namespace orthant
