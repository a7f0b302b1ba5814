#include "orthant/text/sentencepiece.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "text/small_charsmap.h"
#include "text/small_sentencepiece.h"

namespace orthant {
namespace sentencepiece_test {

using Ids = std::vector<std::int32_t>;
using Kind = SentencePieceFile::Kind;
using Type = SentencePieceFile::Type;

Tokenizer load(const std::string& bytes) {
  return Tokenizer(make_sentencepiece(parse_sentencepiece(bytes, "t.model")));
}

std::string refusal(const std::string& bytes) {
  return error_text<DataError>([&] { load(bytes); });
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// Ids: ▁ 3, a 4, b 5, ab 6, ▁a 7, <m> 8.
std::string small(Kind kind) {
  return first_pieces() + piece_message("▁", -3) + piece_message("a", -3) + piece_message("b", -4) +
         piece_message("ab", -1) + piece_message("▁a", -2) + piece_message("<m>", 0, Type::user_defined) +
         trainer_message(kind);
}

TEST(SentencePiece, BpeMergesThePairOfTheGreatestScore) {
  const auto tokenizer = load(small(Kind::bpe));
  EXPECT_EQ(tokenizer.kind(), "BPE");
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{3, 6}));
  EXPECT_EQ(tokenizer.encode("  a  ab "), (Ids{7, 3, 6}));
  EXPECT_EQ(tokenizer.encode("xya"), (Ids{3, 0, 4})) << "one unknown for a run";
  EXPECT_EQ(tokenizer.encode("a<m>b"), (Ids{7, 8, 5}));
  EXPECT_EQ(tokenizer.encode("<s>"), (Ids{3, 0})) << "control pieces are not looked for";
  EXPECT_EQ(tokenizer.encode(" \xff "), (Ids{3, 0}));
  EXPECT_EQ(tokenizer.encode("  "), Ids{});
}

TEST(SentencePiece, UnigramTakesTheGreatestSum) {
  const auto tokenizer = load(small(Kind::unigram));
  EXPECT_EQ(tokenizer.kind(), "Unigram");
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{3, 6}));
  EXPECT_EQ(tokenizer.encode("aab"), (Ids{7, 6}));
  EXPECT_EQ(tokenizer.encode("xya"), (Ids{3, 0, 4}));
  EXPECT_EQ(tokenizer.encode("a<m>b"), (Ids{7, 8, 5}));
}

TEST(SentencePiece, DecodesAndKnowsRoles) {
  for (const auto kind : {Kind::bpe, Kind::unigram}) {
    const auto tokenizer = load(small(kind));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab  ab a")), "ab ab a");
    EXPECT_EQ(tokenizer.decode(Ids{1, 7, 0, 4, 2}), "a \u2047 a");
    EXPECT_EQ(tokenizer.special().begin, 1);
    EXPECT_EQ(tokenizer.special().end, 2);
    EXPECT_EQ(tokenizer.special().unknown, 0);
    EXPECT_EQ(tokenizer.special().pad, std::nullopt);
    EXPECT_FALSE(tokenizer.may_be_cut());
  }
}

TEST(SentencePiece, FallsBackToBytes) {
  for (const auto kind : {Kind::bpe, Kind::unigram}) {
    auto bytes = first_pieces() + trainer_message(kind, true) + piece_message("▁", -1);
    for (int byte = 0; byte < 256; ++byte) {
      bytes += piece_message(token_of_byte(static_cast<unsigned char>(byte)), 0, Type::byte);
    }
    const auto tokenizer = load(bytes);
    EXPECT_EQ(tokenizer.encode("x\u00e9"), (Ids{3, 4 + 'x', 4 + 0xc3, 4 + 0xa9}));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("x\u00e9 \u4e2d")), "x\u00e9 \u4e2d");
    EXPECT_EQ(tokenizer.decode(Ids{4 + 0xc3, 4 + 'x', 3, 4 + 0xff}), "\ufffdx \ufffd");
  }
}

TEST(SentencePiece, NormalisesAsTheFileSays) {
  const auto map = SmallCharsmap({{"A", "a"}, {"\u3000", " "}, {"\u200b", ""}, {"ba", "b"}}).bytes();
  const auto pieces = small(Kind::bpe);
  EXPECT_EQ(load(pieces + normalizer_message(map)).encode("A\u3000\u3000\u200bA"), (Ids{7, 7}));
  EXPECT_EQ(load(pieces + normalizer_message(map)).encode("ba"), (Ids{3, 5})) << "the longest entry";
  EXPECT_EQ(load(pieces + normalizer_message(map, false)).encode("a a"), (Ids{4, 7}));
  EXPECT_EQ(load(pieces + normalizer_message("", false, false)).encode(" a  a "), (Ids{7, 3, 7, 3}));
  EXPECT_EQ(load(pieces + normalizer_message("", true, true, false)).encode("a"), (Ids{0, 4})) << "a bare space";
  const auto suffix = SmallMessage().bytes(2, SmallMessage().integer(24, 1).text()).text();
  EXPECT_EQ(load(pieces + suffix).encode("a a"), (Ids{4, 7, 3}));
}

// SentencePiece's rule written down as it is said: strings, no ids, no heap.
std::vector<std::string> merge_naively(std::string_view text, const std::map<std::string, float>& scores) {
  std::vector<std::string> symbols;
  for (const char letter : text) symbols.emplace_back(1, letter);
  for (;;) {
    std::size_t best = symbols.size();
    float best_score = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto place = scores.find(symbols[i] + symbols[i + 1]);
      if (place == scores.end() || place->second <= best_score) continue;
      best_score = place->second;
      best = i;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(SentencePiece, BpeIsTheRuleWrittenDown) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    std::map<std::string, float> scores = {{"a", 0}, {"b", 0}};  // no piece "c": it is only a part of others
    while (scores.size() < 15) {
      std::string piece;
      for (auto i = 2 + random() % 3; i > 0; --i) piece += "abc"[random() % 3];
      scores[piece] = -static_cast<float>(random() % 8);  // several of the same
    }
    auto bytes = first_pieces() + trainer_message(Kind::bpe) + normalizer_message("", false, false);
    std::map<std::string, std::int32_t> ids;
    for (const auto& [piece, score] : scores) {
      bytes += piece_message(piece, score);
      ids.emplace(piece, static_cast<std::int32_t>(3 + ids.size()));
    }
    const auto tokenizer = load(bytes);
    for (int line = 0; line < 30; ++line) {
      std::string text;
      for (auto i = random() % 90; i > 0; --i) text += "abc"[random() % 3];
      Ids expected;
      for (const auto& symbol : merge_naively(text, scores)) {
        const auto place = ids.find(symbol);
        const auto id = place == ids.end() ? 0 : place->second;
        if (id != 0 || expected.empty() || expected.back() != 0) expected.push_back(id);
      }
      EXPECT_EQ(tokenizer.encode(text), expected) << text;
    }
  }
}

TEST(SentencePiece, RefusesDamagedFiles) {
  const auto good = small(Kind::bpe);
  expect_part(refusal(""), "t.model: this is not a SentencePiece model: it has no pieces");
  expect_part(refusal("\n\x7f"
                      "abc"),
              "a field of 127 bytes has only 3 left");
  expect_part(refusal("\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
              "a field of 18446744073709551615 bytes has only 0 left");
  expect_part(refusal(std::string(11, '\xff')), "a number is longer than ten bytes");
  expect_part(refusal("\x0b"), "field 1 has the wire type 3");
  expect_part(refusal(std::string("\x00\x01", 2)), "a field has the number 0");
  expect_part(refusal(SmallMessage().integer(1, 7).text()), "field 1 has the wire type 0, not 2");
  expect_part(refusal(good.substr(0, good.size() - 1)), "this is not a SentencePiece model");
  const auto specs = trainer_message(Kind::bpe).size();
  expect_part(refusal(good.substr(0, good.size() - specs)), "t.model: there is no trainer_spec");
  expect_part(refusal(good.substr(0, good.size() - 2)), "there is no normalizer_spec\n  fix: the file may be cut off");
  EXPECT_EQ(load(good + SmallMessage().bytes(99, "later").integer(98, 5).real(97, 1).text()).encode("ab"), (Ids{3, 6}))
      << "unknown fields are skipped";
}

TEST(SentencePiece, RefusesWhatItDoesNotRead) {
  const auto good = small(Kind::bpe);
  expect_part(refusal(small(Kind::word)), "t.model: model_type is word, which is not read");
  expect_part(refusal(small(Kind::character)), "model_type is char, which is not read");
  expect_part(refusal(small(static_cast<Kind>(9))), "model_type is 9");
  expect_part(refusal(good + piece_message("", -1)), "piece 9 is empty");
  expect_part(refusal(good + piece_message("\xff", -1)), "piece 9 is not UTF-8");
  expect_part(refusal(good + piece_message("x", std::numeric_limits<float>::quiet_NaN())), "has the score nan");
  expect_part(refusal(good + piece_message("x", 0, static_cast<Type>(7))), "piece 9 is of type 7");
  expect_part(refusal(good + piece_message("a", -1)), "token \"a\" is given twice, with ids 4 and 9");
  expect_part(refusal(good + piece_message("x", -1, Type::unused)), "is unused, which is not read in BPE");
  expect_part(refusal(good + piece_message("<other>", 0, Type::unknown)), "2 pieces are the unknown one");
  expect_part(refusal(piece_message("a")), "0 pieces are the unknown one");
  expect_part(refusal(good + piece_message("<0x41>", 0, Type::byte)), "is a byte, but byte_fallback is off");
  expect_part(refusal(good + trainer_message(Kind::bpe, true)), "byte_fallback is on, but 0 of 256 bytes have a piece");
  expect_part(refusal(good + piece_message(std::string(600, 'x'))), "has 600 bytes");
  expect_part(refusal(small(Kind::unigram) + piece_message(std::string(5000, 'x'))), "has 5000 bytes");
  expect_part(refusal(good + normalizer_message("abc")), "(precompiled_charsmap) has 3 bytes, too few");
  const auto denormalizer = SmallMessage().bytes(5, SmallMessage().bytes(2, "abc").text()).text();
  expect_part(refusal(good + denormalizer), "denormalizer_spec has a table, which is not read");
  EXPECT_EQ(load(small(Kind::unigram) + piece_message("aa", 9, Type::unused)).encode("aa"), (Ids{7, 4}));
  const auto bomb = good + normalizer_message(SmallCharsmap({{"x", std::string(9000, 'y')}}).bytes());
  expect_part(error_text<DataError>([&] { (void)load(bomb).encode("x"); }),
              "the normalizer makes more than 4160 bytes");
}

}  // namespace sentencepiece_test
}  // namespace orthant
