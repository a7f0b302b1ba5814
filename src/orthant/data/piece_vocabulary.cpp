#include "orthant/data/piece_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_set>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr const char* kContinued = "##";
constexpr std::size_t kLongestEnding = 8;  // characters
constexpr std::size_t kLongestWord = 64;

// Where the characters of a word begin, and its end.
std::vector<std::size_t> character_places(std::string_view word) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if ((static_cast<unsigned char>(word[i]) & 0xc0) != 0x80) places.push_back(i);
  }
  places.push_back(word.size());
  return places;
}

std::set<std::string> characters_of(const WordCounts& words) {
  std::set<std::string> characters;
  constexpr std::string_view kAlways = "0123456789abcdefghijklmnopqrstuvwxyz";
  for (const char letter : kAlways) {
    characters.insert(std::string(1, letter));
    characters.insert(kContinued + std::string(1, letter));
  }
  for (const auto& [word, count] : words) {
    const auto places = character_places(word);
    for (std::size_t i = 0; i + 1 < places.size(); ++i) {
      const auto character = word.substr(places[i], places[i + 1] - places[i]);
      characters.insert(i == 0 ? character : kContinued + character);
      const char letter = character.front();
      if (letter >= 'A' && letter <= 'Z') {
        characters.insert(character);
        characters.insert(kContinued + character);
      }
    }
  }
  return characters;
}

using Counted = std::pair<std::string, std::int64_t>;

void sort_by_count(std::vector<Counted>& counted) {
  std::ranges::sort(counted, [](const Counted& a, const Counted& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
}

// Words that may become tokens, frequent ones first.
std::vector<Counted> repeated_words(const WordCounts& words) {
  std::vector<Counted> repeated;
  for (const auto& [word, count] : words) {
    const auto characters = character_places(word).size() - 1;
    if (count >= 2 && characters >= 2 && characters <= kLongestWord) repeated.emplace_back(word, count);
  }
  sort_by_count(repeated);
  return repeated;
}

// Endings of two to eight characters of the words that are no tokens, those that came most first.
std::vector<Counted> frequent_endings(const WordCounts& words, const std::unordered_set<std::string>& taken) {
  WordCounts endings;
  for (const auto& [word, count] : words) {
    if (taken.contains(word)) continue;
    const auto places = character_places(word);
    const auto characters = places.size() - 1;
    if (characters > kLongestWord) continue;
    for (std::size_t length = 2; length <= kLongestEnding && length < characters; ++length) {
      endings[kContinued + word.substr(places[characters - length])] += count;
    }
  }
  std::vector<Counted> frequent;
  for (auto& ending : endings) {
    if (ending.second >= 2) frequent.emplace_back(ending);
  }
  sort_by_count(frequent);
  return frequent;
}

}  // namespace

std::vector<std::string> piece_vocabulary(const WordCounts& words, std::int64_t size) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  const auto characters = characters_of(words);
  tokens.insert(tokens.end(), characters.begin(), characters.end());
  if (size < static_cast<std::int64_t>(tokens.size())) {
    throw ConfigError(fmt::format("a vocabulary of {} does not hold the {} special tokens and single characters", size,
                                  tokens.size()),
                      {.remedy = fmt::format("set --size to {} or more", tokens.size())});
  }
  const auto limit = static_cast<std::size_t>(size);
  std::unordered_set<std::string> taken(tokens.begin(), tokens.end());
  const auto take = [&](const std::vector<Counted>& candidates, std::size_t until) {
    for (const auto& [token, count] : candidates) {
      if (tokens.size() >= until) return;
      if (taken.insert(token).second) tokens.push_back(token);
    }
  };
  const auto repeated = repeated_words(words);
  take(repeated, tokens.size() + (limit - tokens.size()) * 3 / 4);
  take(frequent_endings(words, taken), limit);
  take(repeated, limit);
  return tokens;
}

}  // namespace orthant
