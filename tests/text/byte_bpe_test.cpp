#include "orthant/text/byte_bpe.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "text/small_bpe.h"

namespace orthant {
namespace byte_bpe_test {

using Ids = std::vector<std::int32_t>;

TEST(ByteBpe, MergesBytesIntoTokens) {
  const auto tokenizer = tokenizer_of(small_bpe());
  EXPECT_EQ(tokenizer.kind(), "BPE");
  EXPECT_EQ(tokenizer.vocab_size(), 266);
  EXPECT_EQ(tokenizer.encode("hello world"), (Ids{259, 264}));
  EXPECT_EQ(tokenizer.encode("help\xff"), (Ids{256, 'l', 'p', 0xff}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{259, 264, 0xff}), "hello world\xff");
  EXPECT_EQ(tokenizer.id("\u0120world"), 264);  // as the vocabulary spells it
  EXPECT_EQ(tokenizer.id(" world"), std::nullopt);
}

TEST(ByteBpe, AnyBytesComeBack) {
  auto file = small_bpe();
  file["added_tokens"] =
      nlohmann::json::array({added_token("<x>", 266), added_token("ü!", 267, {{"normalized", true}})});
  const auto tokenizer = tokenizer_of(file);
  auto llama = file;
  llama["pre_tokenizer"] = {{"type", "Sequence"},
                            {"pretokenizers",
                             {{{"type", "Split"}, {"pattern", {{"Regex", kLlama3Regex}}}, {"behavior", "Isolated"}},
                              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto other = tokenizer_of(llama);
  llama["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = R"(\p{L}+|\s+)";
  const auto by_regex = tokenizer_of(llama);
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const auto text = random_bytes(random, 80);
    for (const auto* each : {&tokenizer, &other, &by_regex}) {
      ASSERT_EQ(each->decode(each->encode(text)), text) << "round " << round << ": " << testing::PrintToString(text);
    }
  }
}

TEST(ByteBpe, WordsSeenBeforeGetTheSameIds) {
  // One tokenizer remembers all rounds, the other is new each time.
  const auto file = small_bpe();
  const auto tokenizer = tokenizer_of(file);
  std::mt19937 random(9);
  for (int round = 0; round < 60; ++round) {
    const auto text = random_bytes(random, 200);
    ASSERT_EQ(tokenizer.encode(text), tokenizer_of(file).encode(text)) << testing::PrintToString(text);
  }
}

TEST(ByteBpe, ThreadsGetTheSameIds) {
  const auto tokenizer = tokenizer_of(small_bpe());
  std::mt19937 random(11);
  std::vector<std::string> texts(300);
  std::vector<Ids> expected;
  for (auto& text : texts) expected.push_back(tokenizer.encode(text = random_bytes(random, 100)));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < texts.size(); ++i) wrong[t] += tokenizer.encode(texts[i]) != expected[i];
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0), 0);
}

TEST(ByteBpe, AMegabyteWithoutSpacesIsNotQuadratic) {
  const auto tokenizer = tokenizer_of(small_bpe());
  const auto ids = tokenizer.encode(std::string(1 << 20, 'a'));
  EXPECT_EQ(ids.size(), std::size_t{1} << 19);
  EXPECT_EQ(ids.front(), 265);
}

TEST(ByteBpe, IgnoresMergesOfAWordThatIsAToken) {
  auto file = small_bpe({{"a", "b"}, {"c", "d"}});
  file["model"]["vocab"]["abc"] = 258;  // no merge makes it
  EXPECT_EQ(tokenizer_of(file).encode("abc"), (Ids{256, 'c'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(file).encode("abc"), Ids{258});
}

TEST(ByteBpe, PutsASpaceBeforeTextAndAfterAddedTokens) {
  auto file = small_bpe();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  file["added_tokens"] = nlohmann::json::array({added_token("<x>", 266)});
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.encode("world"), Ids{264});
  EXPECT_EQ(tokenizer.encode(" world"), Ids{264});
  EXPECT_EQ(tokenizer.encode("<x>world"), (Ids{266, 264}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xff"
                                              "b")),
            " a\xff"
            "b");
}

TEST(ByteBpe, BytesWithoutATokenAreUnknownOrAnError) {
  auto file = small_bpe();
  file["model"]["vocab"].erase(spelling_of_bytes("\xff"));
  EXPECT_EQ(tokenizer_of(file).encode("a"), Ids{'a'});
  const auto error = error_text<DataError>([&] { tokenizer_of(file).encode("a\xff"); });
  EXPECT_NE(error.find("the vocabulary has no token for the byte 0xff, and no unk_token"), std::string::npos) << error;
  file["model"]["unk_token"] = "!";
  EXPECT_EQ(tokenizer_of(file).encode("a\xff\xff"), (Ids{'a', '!', '!'}));
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(tokenizer_of(file).encode("a\xff\xff"), (Ids{'a', '!'}));
  file["model"]["unk_token"] = "<unk>";
  const auto missing = error_text<DataError>([&] { tokenizer_of(file); });
  EXPECT_NE(missing.find("unk_token \"<unk>\" is not in the vocabulary"), std::string::npos) << missing;
}

TEST(ByteBpe, RefusesMergesOfTokensThatAreNotThere) {
  auto file = small_bpe();
  file["model"]["merges"].push_back("q zz");
  const auto error = error_text<DataError>([&] { tokenizer_of(file); });
  EXPECT_NE(error.find("tokenizer.json: merge 10 needs the token \"zz\", which is not in the vocabulary"),
            std::string::npos)
      << error;
  file["model"]["merges"].back() = "q z";
  EXPECT_NE(error_text<DataError>([&] { tokenizer_of(file); }).find("needs the token \"qz\""), std::string::npos);
}

TEST(ByteBpe, RefusesAnIdThatIsNotThere) {
  const auto tokenizer = tokenizer_of(small_bpe());
  for (const std::int32_t id : {-1, 266, 1 << 30}) {
    const auto error = error_text<DataError>([&] { tokenizer.decode(Ids{id}); });
    EXPECT_NE(error.find(std::to_string(id) + " is not in the vocabulary"), std::string::npos) << error;
    EXPECT_NE(error.find("between 0 and 265"), std::string::npos) << error;
  }
}

TEST(ByteBpe, EqualTokenizersHaveEqualFingerprints) {
  const auto file = small_bpe();
  const auto print = tokenizer_of(file).fingerprint();
  auto pairs = file;  // merges in the other form
  for (auto& merge : pairs["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  EXPECT_EQ(tokenizer_of(pairs).fingerprint(), print);
  EXPECT_EQ(tokenizer_of(pairs).encode("hello world"), (Ids{259, 264}));

  auto other = file;
  other["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_NE(tokenizer_of(other).fingerprint(), print);
  other = file;
  std::swap(other["model"]["merges"][0], other["model"]["merges"][1]);
  EXPECT_NE(tokenizer_of(other).fingerprint(), print);
  other = file;
  other["added_tokens"] = nlohmann::json::array({added_token("<x>", 266)});
  EXPECT_NE(tokenizer_of(other).fingerprint(), print);
  other = file;
  other["normalizer"] = {{"type", "NFC"}};
  EXPECT_NE(tokenizer_of(other).fingerprint(), print);
}

}  // namespace byte_bpe_test
}  // namespace orthant
