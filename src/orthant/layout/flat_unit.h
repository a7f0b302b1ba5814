// The flat buffers of a unit: which parameters lie where in the contiguous memory that is gathered, reduced, updated
// and saved as a whole. The same numbers serve parameters, gradients and optimizer state of every dtype. Local.
//
// Note [Flat buffers]: a unit has at most one buffer of trainable parameters, one of frozen ones, and one for each set
// of tied parameters with the same borrowers (trainable and frozen apart). Parameters of experts that lie on a mesh of
// their own (expert_view.h) have buffers of their own, whose shards and copies are those of that mesh. Entries start at
// multiples of 32 elements (64 bytes or more in every dtype of at least two bytes); neighbours that one product uses
// together follow each other without a gap. In a trainable buffer decayed parameters come first. The length is a
// multiple of fsdp x 32 elements and is cut into equal shards. Lengths may differ between tp coordinates, as the
// balanced rule gives them unequal parts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/random.h"
#include "orthant/base/ranges.h"
#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

inline constexpr std::int64_t kFlatAlignment = 32;  // elements

// One parameter in a buffer.
struct FlatEntry {
  std::string parameter;
  Shape shape;  // local
  std::int64_t offset = 0;
  std::int64_t elements = 0;
  bool decay = false;
  std::string joined;            // the spec's label
  int dim = 0;                   // boxes lie side by side along it in the local tensor
  std::vector<TensorBox> boxes;  // of the global tensor, in local order
  std::vector<Range> holders;    // per box: the tp coordinates that hold it

  Range range() const { return {offset, offset + elements}; }
};

// Where a run of joined parameters lies, and which entries of the buffer it consists of.
struct JoinedRun {
  std::int64_t offset = 0;
  std::int64_t elements = 0;
  std::size_t first_entry = 0;
  std::size_t num_entries = 0;
};

struct FlatBuffer {
  std::string name;  // "layers.3", "layers.3.frozen", "embed.tied", "embed.tied.frozen"; a second set "embed.tied.2";
                     // "layers.3.experts"
  bool trainable = true;
  int owner = -1;          // unit index
  std::vector<int> users;  // unit indices, ascending: the owner and borrowers; of unit_buffers(): those on the rank
  std::vector<FlatEntry> entries;
  std::int64_t decayed = 0;  // [0, decayed) holds the decayed parameters; a multiple of the alignment
  std::int64_t size = 0;     // with padding
  int num_shards = 1;        // the degree of fsdp of the mesh it lies on
  // Of experts on a mesh of their own: the tp ranks that share each expert; 0: no such experts.
  int expert_tp = 0;

  bool tied() const { return users.size() > 1; }
  Range shard(int fsdp_coordinate) const;

  const FlatEntry* find(std::string_view parameter) const;   // null when it lies elsewhere
  const FlatEntry& entry(std::string_view parameter) const;  // InternalError when it lies elsewhere
};

// The buffers that the unit owns, as the rank at `coordinate` holds them: its trainable one, its frozen one, then those
// of tied parameters, each with a buffer of experts behind it; empty ones are left out. ConfigError for a split that tp
// does not fit and for joined parameters that are no neighbours.
std::vector<FlatBuffer> flat_buffers(const GraphSpec& graph, int unit_index, const Mesh& mesh,
                                     const Coordinate& coordinate);

// The parameters joined under `label`. InternalError when the buffer has none.
JoinedRun joined_entry(const FlatBuffer& buffer, std::string_view label);

}  // namespace orthant
