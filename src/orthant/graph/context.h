// How tokens are cut over cp, as data: which positions of a row a rank has, and by which way its queries meet the keys
// of the other ranks. Pure.
//
// Note [Context cuts]: a rank has a part of every row. Under causal masks a row is cut into two chunks for each rank,
// and coordinate c has chunks c and 2 cp - 1 - c: early queries see few keys and late ones many, so that all ranks have
// the same work (zigzag). Otherwise each rank has one chunk. Chunks follow the balanced rule: cp need not divide the
// row. Everything that depends on a token's place (rotation, learned positions, masks, dropout, labels) reads its
// position in the whole row.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "orthant/base/ranges.h"

namespace orthant {

enum class ContextWay : std::uint8_t {
  ring,        // keys and values of the other ranks come one after the other, while those before are computed with
  all_to_all,  // each rank attends to all tokens with a part of the heads
  gather,      // keys and values of all ranks are gathered
};

inline constexpr std::array<ContextWay, 3> kContextWays = {ContextWay::ring, ContextWay::all_to_all,
                                                           ContextWay::gather};
std::string_view context_way_name(ContextWay way);

struct ContextSharing {
  int degree = 1;
  ContextWay way = ContextWay::ring;
  bool zigzag = false;
  friend bool operator==(const ContextSharing&, const ContextSharing&) = default;
};

// The positions of a row that a rank has, ascending; the second piece may be empty.
struct OwnPositions {
  std::int64_t all = 0;  // of the whole row
  std::array<Range, 2> pieces = {};

  static OwnPositions whole(std::int64_t sequence) {
    return {sequence, {Range{0, sequence}, Range{sequence, sequence}}};
  }
  std::int64_t size() const { return pieces[0].size() + pieces[1].size(); }
  bool is_whole() const { return size() == all; }
  // Own token `second_piece()` and those after it lie so many positions further than they would in one piece.
  std::int64_t second_piece() const { return pieces[0].size(); }
  std::int64_t jump() const { return pieces[1].begin - pieces[0].end; }
  friend bool operator==(const OwnPositions&, const OwnPositions&) = default;
};

OwnPositions own_positions(std::int64_t sequence, const ContextSharing& sharing, int coordinate);

// Which keys an attention lets a query see, by their positions.
struct KeyRule {
  bool causal = false;
  std::int64_t window = 0;  // of a causal one; 0: all before it

  // Whether one of the queries sees one of the keys.
  bool sees(Range queries, Range keys) const;
};

// Which pieces of the keys of coordinate `holder` a query of coordinate `reader` sees.
std::array<bool, 2> seen_pieces(std::int64_t sequence, const ContextSharing& sharing, const KeyRule& rule, int holder,
                                int reader);

// How many positions of a row those are.
std::int64_t seen_positions(std::int64_t sequence, const ContextSharing& sharing, const KeyRule& rule, int holder,
                            int reader);

// Of the rank with the most.
std::int64_t most_own_positions(std::int64_t sequence, const ContextSharing& sharing);

// The shortest row of which every chunk has a token. Of all such rows coordinate 0 has the first token.
std::int64_t least_sequence(const ContextSharing& sharing);
// Of shorter ones, and what to do.
std::string short_rows_text(std::int64_t sequence, const ContextSharing& sharing);
std::string short_rows_remedy(const ContextSharing& sharing);

}  // namespace orthant
