#include "orthant/text/wordpiece.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mesh/thrown_error.h"

namespace orthant {
namespace wordpiece_test {

using test::thrown_text;

// As in a vocab.txt without settings beside it, unless `settings` is given.
class WordPiece : public testing::Test {
 protected:
  WordPiece() : folder_(std::filesystem::path(testing::TempDir()) / fmt::format("orthant_wordpiece_{}", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~WordPiece() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  Tokenizer load(const std::string& tokens, const std::string& settings = "") const {
    if (!settings.empty()) write("tokenizer_config.json", settings);
    return Tokenizer(
        make_wordpiece(read_wordpiece_vocabulary(write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + tokens))));
  }

  // The tokens of a text, with a bar between them.
  static std::string tokens_of(const Tokenizer& tokenizer, std::string_view text) {
    std::string joined;
    for (const auto id : tokenizer.encode(text, {.special = false})) {
      joined += (joined.empty() ? "" : "|") + tokenizer.decode(std::vector<std::int32_t>{id});
    }
    return joined;
  }

  std::filesystem::path folder_;
};

TEST_F(WordPiece, TakesTheLongestPieces) {
  const Tokenizer tokenizer = load("un\nunw\n##want\n##wanted\n##ant\n##ed\n,\n");
  EXPECT_EQ(tokens_of(tokenizer, "unwanted"), "unw|##ant|##ed");
  EXPECT_EQ(tokens_of(tokenizer, "un,UN"), "un|,|un");
  EXPECT_EQ(tokens_of(tokenizer, "unwantedly un"), "[UNK]|un")
      << "a word that pieces do not cover is unknown as a whole";
  EXPECT_EQ(tokens_of(tokenizer, "##want"), "[UNK]|[UNK]|[UNK]") << "the mark of continuing pieces is punctuation";
  EXPECT_EQ(tokenizer.kind(), "WordPiece");
}

TEST_F(WordPiece, AddsItsSpecialTokensAndFindsThemInText) {
  const Tokenizer tokenizer = load("a\nb\n");
  EXPECT_EQ(tokenizer.encode("a b"), (std::vector<std::int32_t>{2, 4, 5, 3}));
  EXPECT_EQ(tokenizer.encode("a[SEP]b [sep]"), (std::vector<std::int32_t>{2, 4, 3, 5, 1, 1, 1, 3}));
  const Encoding pair = tokenizer.encode_pair("a", "b");
  EXPECT_EQ(pair.ids, (std::vector<std::int32_t>{2, 4, 3, 5, 3}));
  EXPECT_EQ(pair.types, (std::vector<std::int32_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(tokenizer.special().pad, 0);
  EXPECT_EQ(tokenizer.special().mask, std::nullopt);
}

TEST_F(WordPiece, UncasedTextLosesAccentsAndCapitals) {
  const Tokenizer tokenizer = load("cafe\nistanbul\nstraße\nοδοσ\nı\n");
  EXPECT_EQ(tokens_of(tokenizer, "Café CAFE\u0301 \u0130stanbul STRA\u1e9eE ΟΔΟΣ ı"),
            "cafe|cafe|istanbul|straße|οδοσ|ı");
}

TEST_F(WordPiece, CasedTextKeepsThem) {
  const Tokenizer tokenizer = load("Café\ncafe\n", "{\"do_lower_case\": false}");
  EXPECT_EQ(tokens_of(tokenizer, "Café cafe Cafe"), "Café|cafe|[UNK]");
}

TEST_F(WordPiece, SettingsAreReadBesideTheVocabulary) {
  const std::string words = "cafe\nCafe\ncafé\n中\n中文\n";
  EXPECT_EQ(tokens_of(load(words, "{\"do_lower_case\": false, \"strip_accents\": true}"), "Café"), "Cafe");
  EXPECT_EQ(tokens_of(load(words, "{\"strip_accents\": false}"), "Café"), "café");
  EXPECT_EQ(tokens_of(load(words, "{\"strip_accents\": null}"), "Café"), "cafe");
  EXPECT_EQ(tokens_of(load(words, "{\"tokenize_chinese_chars\": false}"), "中文"), "中文");
  EXPECT_EQ(tokens_of(load(words, "{\"tokenize_chinese_chars\": true}"), "中文"), "中|[UNK]");
  EXPECT_NE(load(words, "{\"strip_accents\": false}").fingerprint(),
            load(words, "{\"strip_accents\": true}").fingerprint());
  EXPECT_EQ(thrown_text<DataError>([&] { load(words, "{\"do_basic_tokenize\": false}"); }),
            (folder_ / "tokenizer_config.json").string() +
                ":1:23: do_basic_tokenize: text is always cut at white space and punctuation\nset it to true");
}

TEST_F(WordPiece, ControlAndReplacementCharactersGo) {
  const Tokenizer tokenizer = load("ab\na\nb\n");
  EXPECT_EQ(tokens_of(tokenizer, std::string("a\0b a\x7f", 6) + "b a\u200db a\ufffdb a\u00adb"), "ab|ab|ab|ab|ab");
  EXPECT_EQ(tokens_of(tokenizer, "a\tb\u00a0a\u3000b"), "a|b|a|b");
  EXPECT_EQ(tokens_of(tokenizer,
                      "a\xff\xe2\x82"
                      "b \xc3"),
            "ab")
      << "bytes that are not UTF-8 go like U+FFFD";
}

TEST_F(WordPiece, BrokenBytesBecomeOneReplacementForEachBeginning) {
  WordPieceOptions options = read_wordpiece_vocabulary(write("vocab.txt", "[UNK]\n\ufffd\n##\ufffd\na\n##a\n"));
  options.clean_text = false;
  const Tokenizer tokenizer(make_wordpiece(options));
  EXPECT_EQ(tokenizer.encode("\xe2\x82"
                             "a"),
            (std::vector<std::int32_t>{1, 4}));
  EXPECT_EQ(tokenizer.encode("\xf0\x9f\x98\xff"), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(tokenizer.encode("\xed\xa0\x80"), (std::vector<std::int32_t>{1, 2, 2})) << "a surrogate is three errors";
  EXPECT_EQ(tokenizer.encode("\xc0\xaf"
                             "a\xc3"),
            (std::vector<std::int32_t>{1, 2, 4, 2}));
}

TEST_F(WordPiece, WordsBeyondAHundredCharactersAreUnknown) {
  const Tokenizer tokenizer = load("x\n##x\n");
  EXPECT_EQ(tokenizer.encode(std::string(100, 'x'), {.special = false}).size(), 100U);
  EXPECT_EQ(tokens_of(tokenizer, std::string(101, 'x') + " x"), "[UNK]|x");
}

TEST_F(WordPiece, DecodesToReadableText) {
  const Tokenizer tokenizer = load("hello\n##s\nworld\n!\n,\n");
  const auto ids = tokenizer.encode("Hellos, world!");
  EXPECT_EQ(tokenizer.decode(ids), "[CLS] hellos, world! [SEP]");
  EXPECT_EQ(tokenizer.decode(ids, true), "hellos, world!");
}

TEST_F(WordPiece, CarriageReturnsInTheVocabularyAreTolerated) {
  const auto options = read_wordpiece_vocabulary(write("vocab.txt", "[UNK]\r\na\r\nb"));
  ASSERT_EQ(options.vocabulary.size(), 3U);
  EXPECT_EQ(options.vocabulary[1].token, "a");
  EXPECT_EQ(options.vocabulary[2].id, 2);
}

TEST_F(WordPiece, RefusesDamagedVocabularies) {
  const auto refusal = [&](const std::string& text) {
    const std::string path = write("vocab.txt", text);
    const std::string found = thrown_text<DataError>([&] { make_wordpiece(read_wordpiece_vocabulary(path)); });
    return found.starts_with(path) ? found.substr(path.size()) : found;
  };
  EXPECT_EQ(refusal(""), ":1: the vocabulary has no tokens\nwrite one token a line");
  EXPECT_EQ(refusal("[UNK]\n\na\n"),
            ":2: an empty token\nremove the line if it is the last, else use another vocabulary");
  EXPECT_EQ(refusal("[UNK]\na\nb\na\n"),
            ":4: token \"a\" is already in line 2\neach token has one id: remove or rename one of them");
  EXPECT_EQ(refusal("[UNK]\n\xff\n"), ":2: a token that is not UTF-8\nsave the vocabulary as UTF-8");
  EXPECT_EQ(refusal("a\nb\n"),
            ": the unknown token \"[UNK]\" is not in the vocabulary\n"
            "add a line [UNK], or use the vocabulary the model was trained with");
}

}  // namespace wordpiece_test
}  // namespace orthant
