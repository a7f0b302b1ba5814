#include "orthant/text/unigram.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "text/small_bpe.h"

namespace orthant {
namespace unigram_test {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

// Laid out as T5's.
json small_unigram() {
  auto file = json::parse(R"({"normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["</s>", 0], ["▁", -2.5], ["a", -3], ["b", -3.5],
                                                        ["ab", -4.5], ["▁ab", -8], ["ba", -5]]}})");
  file["added_tokens"] = json::array({added_token("</s>", 1)});
  return file;
}

json piece(const std::string& text, double score) {
  return json::array({text, score});
}

TEST(Unigram, TakesThePiecesOfTheGreatestScore) {
  const auto tokenizer = tokenizer_of(small_unigram());
  EXPECT_EQ(tokenizer.kind(), "Unigram");
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{2, 5})) << "-7 instead of -8";
  EXPECT_EQ(tokenizer.encode("aba ba"), (Ids{2, 5, 3, 2, 7}));
  EXPECT_EQ(tokenizer.encode("</s>"), Ids{1});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab aba")), "ab aba");
  EXPECT_FALSE(tokenizer.may_be_cut());
}

TEST(Unigram, UnknownCharactersBecomeOneOrBytes) {
  auto file = small_unigram();
  EXPECT_EQ(tokenizer_of(file).encode("xya"), (Ids{2, 0, 3}));
  file["model"]["byte_fallback"] = true;
  EXPECT_EQ(tokenizer_of(file).encode("xa"), (Ids{2, 0, 3})) << "no tokens for bytes";
  file["model"]["vocab"].push_back(piece("<0x78>", -9));
  EXPECT_EQ(tokenizer_of(file).encode("xxa"), (Ids{2, 8, 8, 3}));
  EXPECT_EQ(tokenizer_of(file).encode("xya"), (Ids{2, 0, 3})) << "not all of the bytes";
  file["model"].erase("unk_id");
  const auto text = error_text<DataError>([&] { (void)tokenizer_of(file).encode("y"); });
  EXPECT_NE(text.find("the vocabulary has no piece for \"y\", and no unk_id"), std::string::npos) << text;
}

// All ways to cut a text, by recursion.
double best_of_all(std::string_view text, const std::vector<std::pair<std::string, double>>& pieces) {
  if (text.empty()) return 0;
  double best = -1e9;
  for (const auto& [piece, score] : pieces) {
    if (text.starts_with(piece)) best = std::max(best, score + best_of_all(text.substr(piece.size()), pieces));
  }
  return best;
}

TEST(Unigram, NoOtherWayToCutATextIsBetter) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::pair<std::string, double>> pieces = {{"a", -4}, {"b", -4}, {"c", -4}};
    while (pieces.size() < 12) {
      std::string text;
      for (auto i = 2 + random() % 4; i > 0; --i) text += "abc"[random() % 3];
      const bool known = std::ranges::any_of(pieces, [&](const auto& other) { return other.first == text; });
      if (!known) pieces.emplace_back(text, -4 - static_cast<double>(random() % 1000) / 100);
    }
    auto file = small_unigram();
    file["pre_tokenizer"] = nullptr;
    file["decoder"] = {{"type", "Fuse"}};
    auto& vocabulary = file["model"]["vocab"] = json::array({piece("<unk>", 0)});
    for (const auto& [text, score] : pieces) vocabulary.push_back(piece(text, score));
    file["added_tokens"] = json::array();
    const auto tokenizer = tokenizer_of(file);
    for (int line = 0; line < 20; ++line) {
      std::string text;
      for (auto i = random() % 12; i > 0; --i) text += "abc"[random() % 3];
      double score = 0;
      const auto ids = tokenizer.encode(text);
      for (const auto id : ids) score += pieces[static_cast<std::size_t>(id - 1)].second;
      EXPECT_EQ(tokenizer.decode(ids), text);
      EXPECT_NEAR(score, best_of_all(text, pieces), 1e-9) << text;
    }
  }
}

TEST(Unigram, RefusesDamagedVocabularies) {
  const auto refusal = [](const std::string& pointer, const json& value) {
    auto file = small_unigram();
    file[json::json_pointer(pointer)] = value;
    return error_text<DataError>([&] { tokenizer_from_json(file.dump(), "t.json"); });
  };
  const auto expect_part = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect_part(refusal("/model/vocab/3", "a"), "token 3 of the vocabulary is not a token with its score");
  expect_part(refusal("/model/vocab/3", json::array({"a"})), "token 3 of the vocabulary is not a token with its score");
  expect_part(refusal("/model/vocab/3", json::array({-1, "a"})),
              "token 3 of the vocabulary is not a token with its score");
  expect_part(refusal("/model/vocab/3", json::array({"a", "b"})),
              "token 3 of the vocabulary is not a token with its score");
  expect_part(refusal("/model/vocab/3", json::array({"a", -1, -2})),
              "token 4 of the vocabulary is not a token with its score");
  expect_part(refusal("/model/vocab/3", json::array({"a", {{"b", 1}}})),
              "token 3 of the vocabulary is not a token with its score");
  expect_part(refusal("/model/vocab/3", json::array({piece("a", -1), -2})),
              "token 3 of the vocabulary is not a token with its score");
  expect_part(refusal("/model/vocab/3", json::array({"b", -1})), "token \"b\" is given twice, with ids 3 and 4");
  expect_part(refusal("/model/vocab/3", json::array({std::string(5000, 'x'), -1})), "has 5000 bytes");
  expect_part(refusal("/model/vocab", json::object({{"a", 1}})), "model.vocab is an object");
  expect_part(refusal("/model/vocab", json::array()), "model.vocab has no tokens");
  expect_part(refusal("/model/unk_id", 8), "model.unk_id is 8");
  expect_part(refusal("/model/unk_id", -1), "model.unk_id is -1");
  expect_part(refusal("/model/unk_id", "0"), "model.unk_id is the string");
  expect_part(refusal("/model/type", "BPE"), "model.vocab is a list");
  expect_part(refusal("/pre_tokenizer", {{"type", "ByteLevel"}}), "pre_tokenizer ends with ByteLevel");
  expect_part(refusal("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "a"}}),
              "normalizer.precompiled_charsmap is not base64");
}

}  // namespace unigram_test
}  // namespace orthant
