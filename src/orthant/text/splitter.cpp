#include "orthant/text/splitter.h"

#include <algorithm>

#include "orthant/text/unicode.h"

namespace orthant {
namespace {

class LiteralSplitter : public Splitter {
 public:
  explicit LiteralSplitter(std::string literal) : literal_(std::move(literal)) {}

  std::vector<Cut> split(std::string_view text) const override {
    std::vector<Cut> cuts;
    std::size_t done = 0;
    while (!literal_.empty()) {
      const auto found = text.find(literal_, done);
      if (found == std::string_view::npos) break;
      if (done < found) cuts.push_back({done, found, false});
      done = found + literal_.size();
      cuts.push_back({found, done, true});
    }
    if (done < text.size()) cuts.push_back({done, text.size(), false});
    return cuts;
  }

 private:
  std::string literal_;
};

class CharacterSplitter : public Splitter {
 public:
  explicit CharacterSplitter(std::function<bool(char32_t)> predicate) : predicate_(std::move(predicate)) {}

  std::vector<Cut> split(std::string_view text) const override {
    std::vector<Cut> cuts;
    for (std::size_t at = 0; at < text.size();) {
      const auto [character, length] = unicode::decode_valid(text.data() + at);
      const auto end = at + static_cast<std::size_t>(length);
      const bool is_match = predicate_(character);
      if (!is_match && !cuts.empty() && !cuts.back().is_match) {
        cuts.back().end = end;
      } else {
        cuts.push_back({at, end, is_match});
      }
      at = end;
    }
    return cuts;
  }

 private:
  std::function<bool(char32_t)> predicate_;
};

class WordAndSignSplitter : public Splitter {
 public:
  std::vector<Cut> split(std::string_view text) const override {
    std::vector<Cut> cuts;
    bool in_word = false;
    for (std::size_t at = 0; at < text.size();) {
      const auto [character, length] = unicode::decode_valid(text.data() + at);
      const auto end = at + static_cast<std::size_t>(length);
      const bool is_space = unicode::is_space(character);
      const bool is_word = !is_space && unicode::is_word(character);
      if (!cuts.empty() && cuts.back().is_match == is_space && in_word == is_word) {
        cuts.back().end = end;
      } else {
        cuts.push_back({at, end, is_space});
      }
      in_word = is_word;
      at = end;
    }
    return cuts;
  }
};

// A match joins the stretch on its left, unless that is a match too.
std::vector<Cut> merge_with_previous(const std::vector<Cut>& cuts) {
  std::vector<Cut> out;
  bool after_match = false;
  for (const auto& cut : cuts) {
    if (cut.is_match && !after_match && !out.empty()) {
      out.back().end = cut.end;
    } else {
      out.push_back(cut);
    }
    after_match = cut.is_match;
  }
  return out;
}

std::vector<Cut> merge_with_next(const std::vector<Cut>& cuts) {
  std::vector<Cut> out;
  bool before_match = false;
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    if (cut->is_match && !before_match && !out.empty()) {
      out.back().begin = cut->begin;
    } else {
      out.push_back(*cut);
    }
    before_match = cut->is_match;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Cut> merge_alike(const std::vector<Cut>& cuts) {
  std::vector<Cut> out;
  for (const auto& cut : cuts) {
    if (!out.empty() && out.back().is_match == cut.is_match) {
      out.back().end = cut.end;
    } else {
      out.push_back(cut);
    }
  }
  return out;
}

}  // namespace

std::vector<Cut> apply_behavior(const std::vector<Cut>& cuts, SplitBehavior behavior) {
  auto out = behavior == SplitBehavior::merged_with_previous ? merge_with_previous(cuts)
             : behavior == SplitBehavior::merged_with_next   ? merge_with_next(cuts)
             : behavior == SplitBehavior::contiguous         ? merge_alike(cuts)
                                                             : cuts;
  std::erase_if(out, [behavior](const Cut& cut) {
    return cut.begin == cut.end || (behavior == SplitBehavior::removed && cut.is_match);
  });
  return out;
}

std::unique_ptr<Splitter> make_literal_splitter(std::string literal) {
  return std::make_unique<LiteralSplitter>(std::move(literal));
}

std::unique_ptr<Splitter> make_character_splitter(std::function<bool(char32_t)> predicate) {
  return std::make_unique<CharacterSplitter>(std::move(predicate));
}

std::unique_ptr<Splitter> make_word_and_sign_splitter() {
  return std::make_unique<WordAndSignSplitter>();
}

}  // namespace orthant
