#include "orthant/text/piece_trie.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::size_t kMaxNodes = std::size_t{1} << 24;  // a node and a byte fit into a key

}  // namespace

PieceTrie::PieceTrie(std::vector<Piece> pieces, const std::string& source) {
  std::erase_if(pieces, [](const Piece& piece) { return piece.text.empty(); });
  std::sort(pieces.begin(), pieces.end(), [](const Piece& left, const Piece& right) {
    return std::tie(left.root, left.text) < std::tie(right.root, right.text);
  });
  std::size_t num_edges = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string_view text = pieces[i].text;
    const std::string_view before = i > 0 && pieces[i - 1].root == pieces[i].root ? pieces[i - 1].text : "";
    const auto [differs, same] = std::mismatch(text.begin(), text.end(), before.begin(), before.end());
    num_edges += static_cast<std::size_t>(text.end() - differs);
  }
  if (num_edges + 2 > kMaxNodes) {
    throw DataError(
        fmt::format("{}: the vocabulary needs {} nodes, but at most {} are allowed", source, num_edges + 2, kMaxNodes),
        {.remedy = "use a vocabulary with fewer or shorter tokens"});
  }
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(2 * num_edges, 16));
  edges_.resize(slots);
  mask_ = slots - 1;
  shift_ = 32 - std::countr_zero(slots);
  for (const Piece& piece : pieces) insert(piece);
}

PieceTrie PieceTrie::of_words(const Vocabulary& vocabulary, std::string_view prefix, const std::string& source) {
  std::vector<Piece> pieces;
  for (std::int64_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    pieces.push_back({Root::kBegin, token, static_cast<std::int32_t>(id)});
    if (!token.starts_with(prefix)) continue;
    pieces.push_back({Root::kContinue, token.substr(prefix.size()), static_cast<std::int32_t>(id)});
  }
  return {std::move(pieces), source};
}

void PieceTrie::insert(const Piece& piece) {
  auto node = static_cast<std::uint32_t>(piece.root);
  Edge* edge = nullptr;
  for (const char byte : piece.text) {
    edge = const_cast<Edge*>(&find(key_of(node, byte)));
    if (edge->node == 0) *edge = {key_of(node, byte), num_nodes_++, -1};
    node = edge->node;
  }
  edge->id = piece.id;
}

}  // namespace orthant
