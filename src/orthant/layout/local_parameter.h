// What one tp coordinate holds of a parameter: the shape of its local tensor and the boxes of the global tensor that it
// consists of. Initial values, checkpoints and the groups that sum gradients of copies all follow from this. Local.
//
// Note [Copies over tp]: a block is cut in whole granules by the balanced rule. A block with fewer granules than tp has
// ranks is held in copies: the degree must be a multiple of the granules, and each granule belongs to degree / granules
// consecutive coordinates (key/value heads fewer than ranks). No coordinate is ever left without a part.
#pragma once

#include <vector>

#include "orthant/base/random.h"
#include "orthant/base/ranges.h"
#include "orthant/graph/spec.h"

namespace orthant {

struct LocalParameter {
  Shape shape;                   // of the local tensor
  int dim = 0;                   // the boxes lie side by side along it
  std::vector<TensorBox> boxes;  // one per block, in local order; one for a replicated parameter
  std::vector<Range> holders;    // per box: the tp coordinates that hold this very box
};

// ConfigError when the split does not fit the shape, or when a block can be neither cut nor held in equal copies.
// resolved_graph() refuses more: heads that ranks do not share evenly, and copies of anything but key/value heads.
LocalParameter local_parameter(const ParameterSpec& parameter, int tp_degree, int tp_coordinate);

// Per block the tp coordinates whose gradients of it are summed because each sees only its own use of the copy. Ranges
// of one coordinate where nothing is copied; nothing for a parameter that is not split.
std::vector<Range> copy_holders(const ParameterSpec& parameter, int tp_degree, int tp_coordinate);

}  // namespace orthant
