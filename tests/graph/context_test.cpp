#include "orthant/graph/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace orthant {
namespace context_test {

std::vector<ContextSharing> sharings() {
  std::vector<ContextSharing> all;
  for (const int degree : {1, 2, 3, 4, 8}) {
    for (const bool zigzag : {false, true}) all.push_back({degree, ContextWay::ring, zigzag});
  }
  return all;
}

TEST(Context, EveryPositionHasOneRankWhateverTheLength) {
  for (const ContextSharing& sharing : sharings()) {
    for (std::int64_t sequence = 1; sequence < 70; ++sequence) {
      std::vector<int> holders(static_cast<std::size_t>(sequence));
      std::int64_t least = sequence, most = 0;
      for (int c = 0; c < sharing.degree; ++c) {
        const OwnPositions own = own_positions(sequence, sharing, c);
        EXPECT_EQ(own.all, sequence);
        EXPECT_LE(own.pieces[0].end, own.pieces[1].begin);
        for (const Range piece : own.pieces) {
          for (std::int64_t p = piece.begin; p < piece.end; ++p) ++holders[static_cast<std::size_t>(p)];
        }
        least = std::min(least, own.size());
        most = std::max(most, own.size());
      }
      EXPECT_EQ(std::ranges::count(holders, 1), sequence);
      EXPECT_LE(most - least, sharing.zigzag ? 2 : 1);
      EXPECT_EQ(most_own_positions(sequence, sharing), most);
    }
  }
}

TEST(Context, OfRowsAsLongAsTheLeastEveryChunkHasATokenAndCoordinateNoughtTheFirst) {
  for (const ContextSharing& sharing : sharings()) {
    for (std::int64_t sequence = least_sequence(sharing); sequence < 50; ++sequence) {
      for (int c = 0; c < sharing.degree; ++c) {
        const OwnPositions own = own_positions(sequence, sharing, c);
        EXPECT_GT(own.pieces[0].size(), 0);
        EXPECT_EQ(own.pieces[0].begin == 0, c == 0);
        if (sharing.zigzag) {
          EXPECT_GT(own.pieces[1].size(), 0);
        }
      }
    }
  }
}

// Pairs of positions one by one.
bool sees_by_pairs(const KeyRule& rule, Range queries, Range keys) {
  for (std::int64_t q = queries.begin; q < queries.end; ++q) {
    for (std::int64_t k = keys.begin; k < keys.end; ++k) {
      if (!rule.causal || (k <= q && (rule.window == 0 || k > q - rule.window))) return true;
    }
  }
  return false;
}

TEST(Context, ARuleSeesWhatOneOfItsPairsSees) {
  for (const KeyRule& rule : {KeyRule{}, KeyRule{true}, KeyRule{true, 1}, KeyRule{true, 3}, KeyRule{true, 5}}) {
    for (std::int64_t q = 0; q < 9; ++q) {
      for (std::int64_t k = 0; k < 9; ++k) {
        for (const std::int64_t queries : {0, 1, 3}) {
          for (const std::int64_t keys : {0, 1, 4}) {
            const Range from{q, q + queries}, to{k, k + keys};
            EXPECT_EQ(rule.sees(from, to), sees_by_pairs(rule, from, to)) << q << ' ' << k << ' ' << rule.window;
          }
        }
      }
    }
  }
}

// Blocks of 2 cp x 2 cp chunks, and keys that travel, of a causal ring.
TEST(Context, ACausalRingComputesHalfOfTheBlocksAndSendsThreeQuartersOfTheKeys) {
  const KeyRule causal{true};
  for (const int cp : {2, 3, 4, 8, 16}) {
    const ContextSharing sharing{cp, ContextWay::ring, true};
    const std::int64_t sequence = std::int64_t{64} * 2 * cp;
    std::int64_t sent = 0, computed = 0;
    std::vector<std::int64_t> work;
    for (int reader = 0; reader < cp; ++reader) {
      std::int64_t own = 0;
      for (int holder = 0; holder < cp; ++holder) {
        if (holder != reader) sent += seen_positions(sequence, sharing, causal, holder, reader);
        for (const Range q : own_positions(sequence, sharing, reader).pieces) {
          for (const Range k : own_positions(sequence, sharing, holder).pieces) own += causal.sees(q, k) ? 1 : 0;
        }
      }
      work.push_back(own);
      computed += own;
    }
    EXPECT_EQ(4 * sent, 3 * (cp - 1) * sequence);
    EXPECT_EQ(computed, std::int64_t{cp} * (2 * cp + 1));  // 1/2 + 1/(4 cp) of (2 cp)^2
    EXPECT_EQ(std::ranges::count(work, work.front()), cp);
  }
}

}  // namespace context_test
}  // namespace orthant
