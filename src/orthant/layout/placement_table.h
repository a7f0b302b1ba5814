// Placements made visible: what `orthant mesh --model` prints, as text for people and as JSON for programs. Local.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/graph/dtype.h"
#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

// Parameters, cut values, with fsdp the flat buffers and their shards, and totals of what `rank` holds of a resolved
// graph. Units that are alike but for a number are one line "layers.0-7  x8" with their bytes together. `params` is
// what parameters are stored in, `unit_pp_coordinates` the pp coordinate of each unit (empty: one stage).
std::string placement_text(const GraphSpec& resolved, const Mesh& mesh, int rank, DType params,
                           const std::vector<int>& unit_pp_coordinates = {});

// {"rank", "parameters": [{"name", "shape", "placement", "local_shape", "bytes"}], "values": [{"name", "shape",
//  "placement", "local_shape"}]}: every parameter of the rank, and the values that tp cuts. Bytes are of the local
//  shape.
nlohmann::ordered_json placement_json(const GraphSpec& resolved, const Mesh& mesh, int rank, DType params,
                                      const std::vector<int>& unit_pp_coordinates = {});

}  // namespace orthant
