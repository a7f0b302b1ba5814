// The pieces of a text whose scores have the greatest sum: Viterbi's search over the places between characters.
//
// Note [Unigram in parts]: where no piece lies across a place, every path goes through it. The path up to there is
// given out, and memory begins anew; the score goes on from it, so that sums round as in a search over the whole text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/text/piece_trie.h"
#include "orthant/text/unicode.h"

namespace orthant {

// Immutable, safe from several threads.
class UnigramSearch {
 public:
  // Scores by id. A character that is not a piece is unknown, at `unknown_score`.
  UnigramSearch(PieceTrie pieces, std::vector<double> scores, double unknown_score)
      : pieces_(std::move(pieces)), scores_(std::move(scores)), unknown_score_(unknown_score) {}

  // Hands the pieces of well-formed UTF-8, in order, to `piece(std::string_view, id)`; -1: an unknown character.
  // `Score` is the type in which sums are kept, which decides between paths that are nearly alike.
  template <typename Score, typename Piece>
  void best_path(std::string_view text, const Piece& piece) const;

 private:
  template <typename Score>
  struct Node {
    Score score = 0;  // of the best path that ends here
    std::size_t begin = kNone;
    std::int32_t id = -1;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  PieceTrie pieces_;
  std::vector<double> scores_;
  double unknown_score_;
};

template <typename Score, typename Piece>
void UnigramSearch::best_path(std::string_view text, const Piece& piece) const {
  std::vector<Node<Score>> nodes(1);  // of the places from `base` to `reach`
  std::vector<std::pair<std::size_t, std::int32_t>> path;
  std::size_t base = 0;
  std::size_t reach = 0;
  const auto offer = [&](std::size_t begin, std::size_t end, Score score, std::int32_t id) {
    if (end > reach) {
      reach = end;
      nodes.resize(reach - base + 1);
    }
    auto& node = nodes[end - base];
    if (node.begin == kNone || score > node.score) node = {score, begin, id};
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto score = nodes[at - base].score;
    const auto character = static_cast<std::size_t>(unicode::decode_valid(text.data() + at).length);
    bool has_character = false;
    pieces_.for_each_prefix(PieceTrie::Root::kBegin, text.substr(at), [&](std::size_t length, std::int32_t id) {
      offer(at, at + length, static_cast<Score>(scores_[static_cast<std::size_t>(id)]) + score, id);
      has_character = has_character || length == character;
    });
    if (!has_character) offer(at, at + character, static_cast<Score>(unknown_score_) + score, -1);
    at += character;
    if (at < reach) continue;
    path.clear();
    for (auto end = at; end > base; end = nodes[end - base].begin) path.emplace_back(end, nodes[end - base].id);
    auto begin = base;
    for (auto step = path.rbegin(); step != path.rend(); ++step) {
      piece(text.substr(begin, step->first - begin), step->second);
      begin = step->first;
    }
    const auto last = nodes[at - base].score;
    nodes.assign(1, {});
    nodes[0].score = last;
    base = reach = at;
  }
}

}  // namespace orthant
