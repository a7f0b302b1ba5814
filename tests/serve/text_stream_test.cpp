#include "orthant/serve/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "mesh/thrown_error.h"
#include "orthant/base/printable.h"
#include "orthant/text/sentencepiece.h"
#include "orthant/text/wordpiece.h"
#include "text/small_bpe.h"
#include "text/small_sentencepiece.h"

namespace orthant {
namespace text_stream_test {

using Ids = std::vector<std::int32_t>;

Tokenizer byte_level() {
  auto file = small_bpe();
  file["added_tokens"].push_back(added_token("<end>", 266));
  return tokenizer_of(file);
}

Tokenizer sentence_pieces() {
  auto bytes = first_pieces() + trainer_message(SentencePieceFile::Kind::bpe, true) + piece_message("▁", -1) +
               piece_message("a", -2) + piece_message("▁b", -3);
  for (int byte = 0; byte < 256; ++byte) {
    bytes += piece_message(token_of_byte(static_cast<unsigned char>(byte)), 0, SentencePieceFile::Type::byte);
  }
  return Tokenizer(make_sentencepiece(parse_sentencepiece(bytes, "t.model")));
}

// As a tokenizer.json says of Llama's SentencePiece models.
Tokenizer fallback_json() {
  nlohmann::json vocabulary = {{"<unk>", 0}, {"▁", 1}, {"a", 2}, {"▁b", 3}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[token_of_byte(static_cast<unsigned char>(byte))] = byte + 4;
  const nlohmann::json steps = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                                {{"type", "ByteFallback"}},
                                {{"type", "Fuse"}},
                                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}};
  return tokenizer_of({{"version", "1.0"},
                       {"added_tokens", nlohmann::json::array()},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", nullptr},
                       {"post_processor", nullptr},
                       {"decoder", {{"type", "Sequence"}, {"decoders", steps}}},
                       {"model",
                        {{"type", "BPE"},
                         {"vocab", vocabulary},
                         {"merges", nlohmann::json::array()},
                         {"byte_fallback", true},
                         {"unk_token", "<unk>"},
                         {"fuse_unk", true}}}});
}

Tokenizer word_pieces() {
  WordPieceOptions options;
  for (const std::string token : {"[UNK]", "hello", "##lo", ",", "don", "'", "t", "n't", "a", "."}) {
    options.vocabulary.push_back({token, static_cast<std::int32_t>(options.vocabulary.size())});
  }
  options.source = "vocab.txt";
  return Tokenizer(make_wordpiece(options));
}

Ids random_ids(const Tokenizer& tokenizer, std::mt19937& random, std::size_t count) {
  Ids ids;
  while (ids.size() < count) {
    // Runs of bytes that make characters are rare among random ones: some are written on purpose.
    if (random() % 4 == 0) {
      const auto text = random_bytes(random, 12);
      const auto more = tokenizer.encode(text);
      ids.insert(ids.end(), more.begin(), more.end());
    } else {
      ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(tokenizer.vocab_size())));
    }
  }
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, const TextStreamOptions& options = {}) {
  TextStream stream(tokenizer, options);
  std::string text;
  const auto take = [&](const std::string& piece) {
    EXPECT_TRUE(is_utf8(piece));
    text += piece;
  };
  for (const auto id : ids) take(stream.add(id));
  take(stream.finish());
  return text;
}

TEST(TextStream, EqualsDecodingTheWhole) {
  std::mt19937 random(7);
  for (const auto& tokenizer : {byte_level(), sentence_pieces(), fallback_json(), word_pieces()}) {
    for (int round = 0; round < 300; ++round) {
      const auto ids = random_ids(tokenizer, random, 1 + random() % 120);
      const auto whole = replace_invalid_utf8(tokenizer.decode(ids, /*skip_special=*/true));
      ASSERT_EQ(streamed(tokenizer, ids), whole) << tokenizer.kind() << ", round " << round;
    }
  }
}

TEST(TextStream, GoesOnWithTheTextBefore) {
  const auto tokenizer = sentence_pieces();
  const Ids ids = tokenizer.encode("b b");
  EXPECT_EQ(streamed(tokenizer, ids), "b b");
  const std::vector<std::int64_t> before = {4};
  EXPECT_EQ(streamed(tokenizer, ids, {.context = before}), " b b");
}

TEST(TextStream, NeverCutsACharacter) {
  const auto tokenizer = byte_level();
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.add(0xf0), "");
  EXPECT_EQ(stream.add(0x9f), "");
  EXPECT_EQ(stream.add(0x98), "");
  EXPECT_EQ(stream.token_begin(), 0);
  EXPECT_EQ(stream.add(0x80), "\U0001f600");
  EXPECT_EQ(stream.token_begin(), 0);
  EXPECT_EQ(stream.add(0xc3), "");
  EXPECT_EQ(stream.token_begin(), 1);
  EXPECT_EQ(stream.add('a'), "\ufffda");
  EXPECT_EQ(stream.add(0xe4), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
}

TEST(TextStream, SpecialAndUnknownTokensHaveNoText) {
  const auto tokenizer = byte_level();
  EXPECT_EQ(streamed(tokenizer, {'a', 266, 'b', 100000, -1}), "ab");
  EXPECT_EQ(streamed(tokenizer, {'a', 266, 'b'}, {.skip_special = false}), "a<end>b");
}

TEST(TextStream, HoldsBackWhatMayBecomeAStopText) {
  const auto tokenizer = byte_level();
  TextStream stream(tokenizer, {.stop_texts = {"world!", "\n\n"}});
  EXPECT_EQ(stream.add(*tokenizer.id("hello")), "hello");
  EXPECT_EQ(stream.add(' '), " ");
  for (const char letter : std::string("world")) EXPECT_EQ(stream.add(letter), "");
  EXPECT_EQ(stream.add('\n'), "world");
  EXPECT_EQ(stream.add('x'), "\nx");
  for (const char letter : std::string("world")) EXPECT_EQ(stream.add(letter), "");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.add('!'), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.add('a'), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, WhatWasHeldBackLeavesAtTheEnd) {
  const auto tokenizer = byte_level();
  EXPECT_EQ(streamed(tokenizer, {'a', '\n'}, {.stop_texts = {"\n\n"}}), "a\n");
  EXPECT_EQ(test::thrown_text([&] { TextStream(tokenizer, {.stop_texts = {""}}); }),
            "a stop text is empty\nleave it out");
}

// The answer ends where the first stop text begins, wherever tokens are cut.
TEST(TextStream, StopsWhereSearchingTheWholeTextDoes) {
  const auto tokenizer = byte_level();
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    Ids ids;
    for (int i = 0; i < 30; ++i) ids.push_back(random() % 8 == 0 ? 264 : 'a' + static_cast<int>(random() % 3));
    const auto whole = tokenizer.decode(ids);
    for (const std::string stop : {"abca", "aab", "ld", "cc"}) {
      ASSERT_EQ(streamed(tokenizer, ids, {.stop_texts = {stop}}), whole.substr(0, whole.find(stop))) << whole << stop;
    }
  }
}

}  // namespace text_stream_test
}  // namespace orthant
