#include "orthant/text/pre_tokenizer.h"

#include <utility>

namespace orthant {
namespace {

bool is_idle(const PreTokenizer::Step& step) {
  return !step.prefix_space && step.space.empty() && !step.splitter;
}

// The text with `space` for every space; `prefix`: one goes before a text that does not begin with one.
std::string with_spaces_as(std::string_view space, std::string_view text, bool prefix) {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + space.size());
  if (prefix && !text.starts_with(' ') && !text.starts_with(space)) out += space;
  for (const char letter : text) {
    if (letter == ' ') {
      out += space;
    } else {
      out += letter;
    }
  }
  return out;
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {
  if (!steps_.empty() && steps_.front().space.empty()) {
    leading_space_ = std::exchange(steps_.front().prefix_space, false);
  }
  const WordSplitter* only = nullptr;
  bool simple = true;
  for (const auto& step : steps_) {
    if (is_idle(step)) continue;
    const auto* words = dynamic_cast<const WordSplitter*>(step.splitter.get());
    // Every stretch of a word splitter is a match.
    simple = simple && !only && words && !step.prefix_space && step.space.empty() &&
             step.behavior == SplitBehavior::isolated;
    only = words;
  }
  if (simple && only) only_ = *only;
}

PreTokenizer::Pieces PreTokenizer::split_by_steps(std::string_view text, Place place) const {
  Pieces pieces;
  pieces.words.push_back(text);
  for (const auto& step : steps_) {
    if (is_idle(step)) continue;
    std::vector<std::string_view> next;
    for (auto piece : pieces.words) {
      if (!step.space.empty()) {
        const bool prefix = step.prefix_space && (!step.prefix_at_begin || place == Place::begin);
        piece = pieces.made.emplace_back(with_spaces_as(step.space, piece, prefix));
      } else if (step.prefix_space && !piece.starts_with(' ')) {
        piece = pieces.made.emplace_back(" " + std::string(piece));
      }
      if (!step.splitter) {
        next.push_back(piece);
        continue;
      }
      auto cuts = step.splitter->split(piece);
      if (step.invert) {
        for (auto& cut : cuts) cut.is_match = !cut.is_match;
      }
      for (const auto& cut : apply_behavior(cuts, step.behavior)) {
        next.push_back(piece.substr(cut.begin, cut.end - cut.begin));
      }
    }
    pieces.words = std::move(next);
  }
  return pieces;
}

std::string PreTokenizer::describe() const {
  std::string text;
  for (const auto& step : steps_) text += step.description + "\n";
  return text;
}

}  // namespace orthant
