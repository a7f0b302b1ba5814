// Text to words, before the model: the steps that a tokenizer.json lists, each cutting what the one before it left.
// Bytes that are not UTF-8 are words of their own, so that patterns see well-formed text only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/splitter.h"
#include "orthant/text/unicode.h"
#include "orthant/text/word_splitter.h"

namespace orthant {

// Where a piece of text between added tokens lies: at the begin of the text, at the begin of one that goes on where an
// earlier one was cut, or behind an added token.
enum class Place { begin, continued, inside };

// Immutable, safe from several threads; copies share the steps.
class PreTokenizer {
 public:
  struct Step {
    bool prefix_space = false;                      // a space goes before every piece that does not begin with one
    std::string space = {};                         // what every space becomes, the one put before a piece too
    bool prefix_at_begin = false;                   // such a space goes before the begin of the text only
    std::shared_ptr<const Splitter> splitter = {};  // none: pieces stay whole
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    std::string description = {};  // for fingerprints: equal for equal steps
  };

  explicit PreTokenizer(std::vector<Step> steps);

  // Hands every word of `text`, in order, to `word(std::string_view)`. A text that continues another one gets no space
  // before it.
  template <typename Word>
  void split(std::string_view text, Place place, const Word& word) const;

  // A hand-written splitter does all of the work: see Note [Safe cuts].
  bool is_known() const { return only_.has_value(); }

  std::string describe() const;

 private:
  // What is made on the way lives here.
  struct Pieces {
    std::vector<std::string_view> words;
    std::deque<std::string> made;
  };
  Pieces split_by_steps(std::string_view text, Place place) const;
  template <typename Word>
  void split_valid(std::string_view text, Place place, const Word& word) const;
  template <typename Word>
  void split_stretches(std::string_view text, Place place, const Word& word) const;

  std::vector<Step> steps_;
  bool leading_space_ = false;        // the first step's space, which goes before the whole text
  std::optional<WordSplitter> only_;  // set when a single hand-written splitter does all of the work
};

template <typename Word>
void PreTokenizer::split_valid(std::string_view text, Place place, const Word& word) const {
  if (!only_) {
    for (const auto piece : split_by_steps(text, place).words) word(piece);
    return;
  }
  for (std::size_t at = 0; at < text.size();) {
    const auto end = only_->next(text, at);
    word(text.substr(at, end - at));
    at = end;
  }
}

template <typename Word>
void PreTokenizer::split_stretches(std::string_view text, Place place, const Word& word) const {
  for (std::size_t at = 0; at < text.size();) {
    if (const auto length = unicode::valid_length(text, at)) {
      split_valid(text.substr(at, length), place, word);
      at += length;
    }
    const auto broken = at;
    while (at < text.size() && unicode::decode(text, at).length == 0) ++at;
    if (at > broken) word(text.substr(broken, at - broken));
    if (place == Place::begin) place = Place::inside;
  }
}

template <typename Word>
void PreTokenizer::split(std::string_view text, Place place, const Word& word) const {
  if (leading_space_ && place != Place::continued && !text.starts_with(' ')) {
    split_stretches(" " + std::string(text), place, word);
  } else {
    split_stretches(text, place, word);
  }
}

}  // namespace orthant
