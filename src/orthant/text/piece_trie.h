// Pieces of a vocabulary as a tree of bytes with two roots, for WordPiece: pieces that begin a word, and pieces that
// continue one. It finds the pieces at a place in one walk. The edges lie in one flat hash table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/vocabulary.h"

namespace orthant {

// Immutable once built.
class PieceTrie {
 public:
  enum class Root : std::uint32_t { kBegin = 0, kContinue = 1 };

  struct Piece {
    Root root = Root::kBegin;
    std::string_view text;
    std::int32_t id = -1;
  };

  // Pieces without text are left out. DataError beyond 16 million nodes, with `source`.
  PieceTrie(std::vector<Piece> pieces, const std::string& source);

  // Of a WordPiece vocabulary; `prefix` marks the tokens that continue a word.
  static PieceTrie of_words(const Vocabulary& vocabulary, std::string_view prefix, const std::string& source);

  // The longest piece that begins `text`; length 0 when there is none.
  struct Match {
    std::int32_t id = -1;
    std::size_t length = 0;
  };
  Match longest(Root root, std::string_view text) const {
    Match match;
    auto node = static_cast<std::uint32_t>(root);
    for (std::size_t at = 0; at < text.size(); ++at) {
      const Edge& edge = find(key_of(node, text[at]));
      if (edge.node == 0) break;
      node = edge.node;
      if (edge.id >= 0) match = {edge.id, at + 1};
    }
    return match;
  }

  // Hands every piece that begins `text`, shortest first, to `found(length, id)`.
  template <typename Found>
  void for_each_prefix(Root root, std::string_view text, const Found& found) const {
    auto node = static_cast<std::uint32_t>(root);
    for (std::size_t at = 0; at < text.size(); ++at) {
      const Edge& edge = find(key_of(node, text[at]));
      if (edge.node == 0) break;
      node = edge.node;
      if (edge.id >= 0) found(at + 1, edge.id);
    }
  }

 private:
  struct Edge {
    std::uint32_t key = 0;
    std::uint32_t node = 0;  // that the edge leads to; 0: no edge here
    std::int32_t id = -1;    // of the piece that ends there
  };

  static std::uint32_t key_of(std::uint32_t node, char byte) { return node << 8 | static_cast<unsigned char>(byte); }

  // The slot of the key, or the free one where it would be.
  const Edge& find(std::uint32_t key) const {
    std::size_t slot = key * 0x9e3779b1U >> shift_;
    while (edges_[slot].node != 0 && edges_[slot].key != key) slot = (slot + 1) & mask_;
    return edges_[slot];
  }

  void insert(const Piece& piece);

  std::vector<Edge> edges_;
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::uint32_t num_nodes_ = 2;
};

}  // namespace orthant
