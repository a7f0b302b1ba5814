// Where each parameter and value of a resolved graph (tensor_policy.h) lies over tp, in words and shapes: what a rank
// holds of it. For people who look at a cut and for programs that check one; the runtime reads the spec itself. Local.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

struct Placement {
  enum class Cut {
    whole,   // every tp rank has all of it
    column,  // over the outputs of a product: its weight's rows, its bias
    row,     // over the inputs of a product, which is summed over tp
    table,   // over the entries of a table
  };

  std::string parameter;
  int unit = 0;  // that owns it
  Shape shape;   // global
  Cut cut = Cut::whole;
  bool partial = false;     // ranks see their own tokens: its gradient is a partial sum over tp
  std::int64_t copies = 1;  // tp ranks that hold this rank's part: key and value heads fewer than ranks
  Shape local_shape;
  friend bool operator==(const Placement&, const Placement&) = default;
};

// "column", "row", "table rows", "whole", then ", partial" and ", 2 copies".
std::string placement_words(const Placement& placement);

// Of the parameters that units of `rank` own or borrow, without experts that other ranks of ep hold, by the unit that
// owns them, as the rank holds them before fsdp cuts flat buffers. `unit_pp_coordinates` is the pp coordinate of each
// unit; empty: one stage. InternalError for a graph that lies over another number of tp ranks than the mesh has.
std::vector<Placement> placements(const GraphSpec& resolved, const Mesh& mesh, int rank,
                                  const std::vector<int>& unit_pp_coordinates = {});

struct ValuePlacement {
  enum class Cut {
    tokens,      // those of all rows, one row after another, by the balanced rule
    vocabulary,  // the last dim of logits
  };

  std::string value;
  Shape shape;
  Cut cut = Cut::tokens;
  Shape local_shape;
  friend bool operator==(const ValuePlacement&, const ValuePlacement&) = default;
};

// "tokens", "vocabulary".
std::string placement_words(const ValuePlacement& placement);

// Of the values that units of `rank` read or write and tp cuts; the others are whole on every rank. InternalError
// likewise.
std::vector<ValuePlacement> cut_values(const GraphSpec& resolved, const Mesh& mesh, int rank,
                                       const std::vector<int>& unit_pp_coordinates = {});

}  // namespace orthant
