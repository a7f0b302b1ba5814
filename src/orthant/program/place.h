// Places a unit's operations on the ranks of its axes: puts exchanges between them where one makes a value in another
// form than the next needs. Pure. Internal to this layer.
#pragma once

#include "orthant/program/program.h"

namespace orthant {

// A body with placements, exchanges among its operations, and parameters as ranks have them.
struct PlacedBody {
  std::vector<ProgramValue> values;
  std::vector<ProgramParameter> parameters;
  std::vector<int> inputs;
  std::vector<int> outputs;
  std::vector<Operation> operations;
};

PlacedBody place_body(const GraphSpec& graph, const UnitSpec& unit, const Body& body, const TensorSharing& sharing);

inline constexpr std::string_view kExchange = "exchange";

}  // namespace orthant
