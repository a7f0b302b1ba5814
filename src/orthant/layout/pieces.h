// Pieces of global tensors: what a part of a flat buffer holds in terms that do not depend on the mesh, so that any
// mesh can read what another wrote. A piece is a box of the global tensor and, when it is not the whole box, a range in
// row-major order inside it. Local.
//
// Note [Who writes]: an element may be held by many ranks. Among the tp coordinates that hold its box (copies, or
// every tp coordinate for a replicated parameter) the box is divided by the balanced rule; in the buffer of that
// coordinate one fsdp shard holds it; and the ranks of dp and cp, which hold equal shards, divide what is left of the
// shard evenly. So each element has exactly one writer in the stage that owns its unit, even where tp coordinates have
// unequal buffers. Experts that lie on a mesh of their own are divided on that mesh. The gradient norm counts by the
// same rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/layout/flat_unit.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

// Its elements, in row-major order of the box, are one contiguous run of the flat buffer.
struct Piece {
  std::string tensor;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> lengths;
  std::optional<Range> range;     // inside the box; nothing: all of it
  std::int64_t local_offset = 0;  // of its first element in the flat buffer

  Range span() const;  // the range, or that of the whole box
  std::int64_t elements() const { return span().size(); }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// What lies in [part.begin, part.end) of the buffer, in the buffer's order; padding belongs to no piece. A parameter of
// several blocks that is cut along another dim than its first gives a piece per block and row.
std::vector<Piece> pieces_of(const FlatBuffer& buffer, Range part);

// The pieces that `rank` writes of a buffer that its stage owns (one of flat_buffers at the rank's coordinate): a part
// of its own fsdp shard. See Note [Who writes]. Alike for parameters and optimizer state.
std::vector<Piece> pieces_to_write(const FlatBuffer& buffer, const Mesh& parameter_mesh, int rank);

// The piece as boxes of the global tensor of that shape which, laid end to end, are its elements in order.
std::vector<TensorBox> boxes_of(const Piece& piece, const Shape& global_shape);

// Elements [stored_offset, stored_offset + length) of one piece are [wanted_offset, ...) of another; both count from
// the piece's first element.
struct Overlap {
  std::int64_t stored_offset = 0;
  std::int64_t wanted_offset = 0;
  std::int64_t length = 0;
  friend bool operator==(const Overlap&, const Overlap&) = default;
};

// What two pieces of one global tensor share, as the fewest runs that are contiguous in both, in ascending order.
// InternalError when the pieces are of tensors of different rank.
std::vector<Overlap> intersect(const Piece& wanted, const Piece& stored);

}  // namespace orthant
