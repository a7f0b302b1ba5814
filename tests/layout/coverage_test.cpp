#include <fmt/format.h>
#include <gtest/gtest.h>

#include "layout/naive_layout.h"
#include "layout/random_graph.h"
#include "mesh/thrown_error.h"
#include "orthant/base/error.h"
#include "orthant/layout/manifest.h"

namespace orthant {
namespace coverage_test {

using test::Elements;
using test::thrown_text;

ManifestPiece box(Shape offsets, Shape lengths, std::optional<Range> range = {}, std::string file = "a.safetensors") {
  return {std::move(offsets), std::move(lengths), range, std::move(file), "w"};
}

std::string refusal(Shape shape, std::vector<ManifestPiece> pieces) {
  const ManifestTensor tensor{.name = "w", .shape = std::move(shape), .pieces = std::move(pieces)};
  const std::string text = thrown_text<DataError>([&] { check_coverage(tensor, "manifest.json"); });
  const auto line = text.find('\n');
  EXPECT_EQ(text.substr(line + 1), "the checkpoint is damaged or incomplete: use another one");
  return text.substr(0, line);
}

TEST(Coverage, NamesOverlapsWithBothFiles) {
  EXPECT_EQ(refusal({4, 4}, {box({0, 0}, {4, 4}, Range{0, 9}), box({0, 0}, {4, 4}, Range{8, 16}, "b.safetensors")}),
            "manifest.json: tensor w: the pieces at [0, 0] of lengths [4, 4] range [0, 9) in a.safetensors and "
            "at [0, 0] of lengths [4, 4] range [8, 16) in b.safetensors overlap");
  EXPECT_EQ(refusal({4, 4}, {box({0, 0}, {4, 3}), box({0, 2}, {4, 2}, {}, "b.safetensors")}),
            "manifest.json: tensor w: the pieces at [0, 0] of lengths [4, 3] in a.safetensors and "
            "at [0, 2] of lengths [4, 2] in b.safetensors overlap");
}

TEST(Coverage, NamesHoles) {
  EXPECT_EQ(refusal({4, 4}, {box({0, 0}, {4, 2})}),
            "manifest.json: tensor w of shape [4, 4]: its 1 pieces hold 8 of 16 elements");
  EXPECT_EQ(refusal({}, {}), "manifest.json: tensor w of shape []: its 0 pieces hold 0 of 1 elements");
}

TEST(Coverage, NamesWhatLeavesTheShape) {
  EXPECT_EQ(refusal({4, 4}, {box({1, 0}, {4, 4})}),
            "manifest.json: tensor w of shape [4, 4]: the piece at [1, 0] of lengths [4, 4] in a.safetensors exceeds "
            "the shape");
  EXPECT_EQ(refusal({4, 4}, {box({0, 0}, {4, 4}, Range{0, 17})}),
            "manifest.json: tensor w: the piece at [0, 0] of lengths [4, 4] range [0, 17) in a.safetensors has a range "
            "outside its 16 elements");
  EXPECT_NE(refusal({4, 4}, {box({0}, {16})}).find("exceeds the shape"), std::string::npos);
  EXPECT_NE(refusal({4}, {box({-1}, {4})}).find("exceeds the shape"), std::string::npos);
  EXPECT_NE(refusal({4}, {box({INT64_MAX}, {INT64_MAX})}).find("exceeds the shape"), std::string::npos);
  EXPECT_NE(refusal({4}, {box({0}, {4}, Range{3, 2})}).find("outside its 4 elements"), std::string::npos);
  EXPECT_EQ(refusal({-1}, {}), "manifest.json: tensor w: no tensor has shape [-1]");
  EXPECT_EQ(refusal({std::int64_t{1} << 62, 4}, {}),
            "manifest.json: tensor w: no tensor has shape [4611686018427387904, 4]");
}

TEST(Coverage, AcceptsEmptyTensorsAndScalars) {
  EXPECT_NO_THROW(check_coverage({.name = "w", .shape = {0, 3}, .pieces = {}}, "m"));
  EXPECT_NO_THROW(check_coverage({.name = "w", .shape = {0, 3}, .pieces = {box({0, 0}, {0, 3})}}, "m"));
  EXPECT_NO_THROW(check_coverage({.name = "w", .shape = {}, .pieces = {box({}, {})}}, "m"));
}

TEST(Coverage, AcceptsMeetingBoxesWhoseRangesDoNotMeet) {
  // The first row by a range of the whole, the rest as a box and an overlapping box with half its elements.
  EXPECT_NO_THROW(check_coverage(
      {.name = "w",
       .shape = {3, 4},
       .pieces = {box({0, 0}, {3, 4}, Range{0, 4}), box({0, 0}, {2, 4}, Range{4, 8}), box({2, 0}, {1, 4})}},
      "m"));
}

// Cuts boxes at random until they are small, then some into ranges.
std::vector<ManifestPiece> random_tiling(test::RandomGraphs& random, ManifestPiece piece, int depth) {
  const int dims = static_cast<int>(piece.lengths.size());
  std::int64_t elements = 1;
  for (const std::int64_t length : piece.lengths) elements *= length;
  if (dims > 0 && depth > 0) {
    const auto d = static_cast<std::size_t>(random.below(dims));
    if (piece.lengths[d] > 1) {
      const std::int64_t cut = 1 + random.below(static_cast<int>(piece.lengths[d]) - 1);
      ManifestPiece rest = piece;
      rest.offsets[d] += cut;
      rest.lengths[d] -= cut;
      piece.lengths[d] = cut;
      auto all = random_tiling(random, piece, depth - 1);
      const auto others = random_tiling(random, rest, depth - 1);
      all.insert(all.end(), others.begin(), others.end());
      return all;
    }
  }
  if (random.below(2) == 0 || elements == 1) return {piece};
  ManifestPiece rest = piece;
  const std::int64_t cut = 1 + random.below(static_cast<int>(elements) - 1);
  piece.range = Range{0, cut};
  rest.range = Range{cut, elements};
  return {rest, piece};
}

TEST(Coverage, AgreesWithCountingEveryElement) {
  test::RandomGraphs random(31);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    Shape shape;
    for (int d = random.below(4); d > 0; --d) shape.push_back(1 + random.below(6));
    ManifestTensor tensor{.name = "w", .shape = shape, .pieces = {}};
    tensor.pieces = random_tiling(random, box(Shape(shape.size(), 0), shape), 3);
    if (random.below(2) == 0) {  // move, widen or drop one
      ManifestPiece& victim =
          tensor.pieces[static_cast<std::size_t>(random.below(static_cast<int>(tensor.pieces.size())))];
      if (victim.range && random.below(2) == 0) {
        victim.range->begin = std::max<std::int64_t>(0, victim.range->begin - 1);
      } else if (!shape.empty() && victim.offsets[0] > 0) {
        --victim.offsets[0];
      } else {
        victim = tensor.pieces.back();
        tensor.pieces.pop_back();
      }
    }
    std::vector<int> count(static_cast<std::size_t>(num_elements(shape)), 0);
    for (const ManifestPiece& piece : tensor.pieces) {
      for (const std::int64_t e : test::piece_elements(shape, piece)) ++count[static_cast<std::size_t>(e)];
    }
    const bool exact = std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
    bool passed = true;
    try {
      check_coverage(tensor, "m");
    } catch (const DataError&) {
      passed = false;
    }
    ASSERT_EQ(passed, exact) << "round " << round;
    ++(exact ? accepted : refused);
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Coverage, IsQuickForManyPieces) {
  // 128 x 512 boxes, each in four ranges: 262 144 pieces.
  ManifestTensor tensor{.name = "w", .shape = {512, 8192}, .pieces = {}};
  for (std::int64_t row = 0; row < 128; ++row) {
    for (std::int64_t column = 0; column < 512; ++column) {
      for (std::int64_t part = 0; part < 4; ++part) {
        tensor.pieces.push_back(box({row * 4, column * 16}, {4, 16}, Range{part * 16, part * 16 + 16}));
      }
    }
  }
  EXPECT_NO_THROW(check_coverage(tensor, "m"));
  tensor.pieces.pop_back();
  EXPECT_THROW(check_coverage(tensor, "m"), DataError);
}

}  // namespace coverage_test
}  // namespace orthant
