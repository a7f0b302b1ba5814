#include "orthant/layout/pieces.h"

#include <gtest/gtest.h>

#include "layout/naive_layout.h"
#include "layout/random_graph.h"
#include "mesh/thrown_error.h"
#include "orthant/base/error.h"

namespace orthant {
namespace pieces_test {

using test::Elements;
using test::thrown_text;

GraphSpec one_parameter(Shape shape, std::optional<Split> split) {
  return test::named_graph(
      "one", {test::named_unit("unit", {test::named_parameter("w", std::move(shape), std::move(split))})});
}

TEST(Pieces, WholeBoxesHaveNoRange) {
  const auto buffer = flat_buffers(one_parameter({6, 2}, Split{.dim = 0, .blocks = {}, .granule = 1}), 0,
                                   Mesh::parse("tp=2"), Coordinate())
                          .at(0);
  const auto pieces = pieces_of(buffer, {0, buffer.size});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0], (Piece{.tensor = "w", .offsets = {0, 0}, .lengths = {3, 2}, .range = {}, .local_offset = 0}));
}

TEST(Pieces, PartsOfABoxHaveARange) {
  const auto buffer = flat_buffers(one_parameter({6, 2}, {}), 0, Mesh(), Coordinate()).at(0);
  const auto pieces = pieces_of(buffer, {3, 32});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0],
            (Piece{.tensor = "w", .offsets = {0, 0}, .lengths = {6, 2}, .range = Range{3, 12}, .local_offset = 3}));
}

TEST(Pieces, BlocksAlongALaterDimGiveOnePieceARow) {
  const auto graph = one_parameter({2, 8}, Split{.dim = 1, .blocks = {4, 4}, .granule = 1});
  const auto buffer = flat_buffers(graph, 0, Mesh::parse("tp=2"), Coordinate()).at(0);
  const auto pieces = pieces_of(buffer, {1, 8});
  ASSERT_EQ(pieces.size(), 4U);
  EXPECT_EQ(pieces[0],
            (Piece{.tensor = "w", .offsets = {0, 0}, .lengths = {2, 2}, .range = Range{1, 2}, .local_offset = 1}));
  EXPECT_EQ(pieces[3],
            (Piece{.tensor = "w", .offsets = {0, 4}, .lengths = {2, 2}, .range = Range{2, 4}, .local_offset = 6}));
}

TEST(Pieces, ScalarsAndOneElementTensorsArePieces) {
  const auto buffer = flat_buffers(one_parameter({}, {}), 0, Mesh(), Coordinate()).at(0);
  ASSERT_EQ(pieces_of(buffer, {0, 32}).size(), 1U);
  EXPECT_EQ(pieces_of(buffer, {0, 32})[0].elements(), 1);
  EXPECT_TRUE(pieces_of(buffer, {1, 32}).empty());
}

TEST(PiecesToWrite, ReplicasShareTheWork) {
  const auto graph = one_parameter({100}, {});
  const Mesh mesh = Mesh::parse("dp=5,cp=2");
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const auto buffer = flat_buffers(graph, 0, mesh, mesh.coordinate(rank)).at(0);
    const auto pieces = pieces_to_write(buffer, mesh, rank);
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].elements(), 10);
    EXPECT_EQ(pieces[0].local_offset, pieces[0].span().begin);
  }
}

TEST(Intersect, CopiesColumnsFromRowsInTheFewestRuns) {
  const Piece wanted{.tensor = "w", .offsets = {0, 2}, .lengths = {4, 2}, .range = {}, .local_offset = 0};
  const Piece stored{.tensor = "w", .offsets = {1, 0}, .lengths = {2, 4}, .range = {}, .local_offset = 0};
  EXPECT_EQ(intersect(wanted, stored), (std::vector<Overlap>{{2, 2, 2}, {6, 4, 2}}));
  const Piece rows{.tensor = "w", .offsets = {2, 0}, .lengths = {2, 4}, .range = Range{1, 8}, .local_offset = 0};
  const Piece all{.tensor = "w", .offsets = {0, 0}, .lengths = {4, 4}, .range = {}, .local_offset = 0};
  EXPECT_EQ(intersect(all, rows), (std::vector<Overlap>{{0, 9, 7}}));
}

TEST(Intersect, RefusesTensorsOfDifferentRank) {
  const Piece vector{.tensor = "b", .offsets = {0}, .lengths = {4}, .range = {}, .local_offset = 0};
  const Piece matrix{.tensor = "w", .offsets = {0, 0}, .lengths = {4, 4}, .range = {}, .local_offset = 0};
  EXPECT_EQ(thrown_text<InternalError>([&] { intersect(vector, matrix); }),
            "a piece of b with 1 dims meets a piece of w with 2\n");
}

class RandomPieces {
 public:
  explicit RandomPieces(unsigned seed) : random_(seed) {}

  int below(int bound) { return random_.below(bound); }

  Piece next(const Shape& shape) {
    Piece piece{.tensor = "w", .offsets = {}, .lengths = {}, .range = {}, .local_offset = 0};
    for (const std::int64_t size : shape) {
      const bool whole = below(3) == 0;
      piece.offsets.push_back(whole ? 0 : below(static_cast<int>(size)));
      piece.lengths.push_back(whole ? size : 1 + below(static_cast<int>(size - piece.offsets.back())));
    }
    if (below(2) == 0) return piece;
    const auto elements = static_cast<int>(piece.elements());
    const int begin = below(elements);
    piece.range = Range{begin, begin + below(elements - begin + 1)};
    return piece;
  }

 private:
  test::RandomGraphs random_;
};

TEST(Intersect, FindsExactlyTheCommonElementsOfAnyTwoPieces) {
  RandomPieces random(23);
  for (int round = 0; round < 20000; ++round) {
    Shape shape;
    for (int d = random.below(5); d > 0; --d) shape.push_back(1 + random.below(5));
    const Piece wanted = random.next(shape);
    const Piece stored = random.next(shape);
    const Elements to = test::piece_elements(shape, wanted);
    const Elements from = test::piece_elements(shape, stored);
    Elements copied(to.size(), -1);
    const auto runs = intersect(wanted, stored);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const Overlap& run = runs[i];
      ASSERT_GT(run.length, 0);
      ASSERT_LE(run.stored_offset + run.length, static_cast<std::int64_t>(from.size())) << "round " << round;
      ASSERT_LE(run.wanted_offset + run.length, static_cast<std::int64_t>(to.size())) << "round " << round;
      for (std::int64_t e = 0; e < run.length; ++e) {
        copied[static_cast<std::size_t>(run.wanted_offset + e)] = from[static_cast<std::size_t>(run.stored_offset + e)];
      }
      if (i > 0) {
        const Overlap& last = runs[i - 1];
        EXPECT_FALSE(last.stored_offset + last.length == run.stored_offset &&
                     last.wanted_offset + last.length == run.wanted_offset)
            << "round " << round << ": two runs could be one";
      }
    }
    Elements expected;
    for (const std::int64_t element : to) {
      expected.push_back(std::find(from.begin(), from.end(), element) == from.end() ? -1 : element);
    }
    ASSERT_EQ(copied, expected) << "round " << round;
  }
}

TEST(Intersect, SkipsWhatTheRangesDoNotReach) {
  // A column box against 100 000 row ranges: quick only when rows outside a range are not visited.
  const Piece wanted{.tensor = "w", .offsets = {0, 64}, .lengths = {100000, 64}, .range = {}, .local_offset = 0};
  std::int64_t copied = 0;
  for (std::int64_t row = 0; row < 100000; ++row) {
    const Piece stored{.tensor = "w",
                       .offsets = {0, 0},
                       .lengths = {100000, 128},
                       .range = Range{row * 128, (row + 1) * 128},
                       .local_offset = 0};
    for (const Overlap& run : intersect(wanted, stored)) copied += run.length;
  }
  EXPECT_EQ(copied, 100000 * 64);
}

}  // namespace pieces_test
}  // namespace orthant
