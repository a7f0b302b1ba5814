// A byte-level BPE small enough to follow by hand, as the text of a tokenizer.json: the 256 bytes, then one token for
// each merge, in order. Random words and texts for property tests.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "orthant/text/byte_alphabet.h"
#include "orthant/text/tokenizer_json.h"

namespace orthant {

using MergeList = std::vector<std::pair<std::string, std::string>>;

inline const MergeList kSmallMerges = {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"},  {" ", "w"},
                                       {"o", "r"}, {"l", "d"}, {" w", "or"}, {" wor", "ld"}, {"a", "a"}};

// Merges are given as bytes.
inline nlohmann::json small_bpe(const MergeList& merges = kSmallMerges) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[spelling_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    const auto id = vocabulary.size();
    vocabulary.emplace(spelling_of_bytes(left + right), id);
    list.push_back(spelling_of_bytes(left) + " " + spelling_of_bytes(right));
  }
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", list}}}};
}

inline Tokenizer tokenizer_of(const nlohmann::json& file) {
  return Tokenizer(tokenizer_from_json(file.dump(), "tokenizer.json"));
}

inline nlohmann::json added_token(const std::string& content, int id, nlohmann::json more = nlohmann::json::object()) {
  nlohmann::json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                          {"rstrip", false}, {"normalized", false}, {"special", true}};
  token.update(more);
  return token;
}

// Bytes that are often, but not always, letters, blanks and whole characters.
inline std::string random_bytes(std::mt19937& random, std::size_t max_length) {
  static const std::vector<std::string> kParts = {" ",    "  ",       "\n",    "\t",  "hello",  " world",     "a",
                                                  "'s",   "'LL",      "12345", "é",   "\u4e2d", "\U0001f600", "\u00a0",
                                                  "\xff", "\xe4\xb8", "\x80",  "<x>", "ü!",     "!?",         "\r\n"};
  std::string text;
  const auto length = random() % (max_length + 1);
  while (text.size() < length) {
    if (random() % 3 == 0) {
      text += static_cast<char>(random() % 256);
    } else {
      text += kParts[random() % kParts.size()];
    }
  }
  return text;
}

}  // namespace orthant
