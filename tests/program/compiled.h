// Programs of small models, as text.
#pragma once

#include <string>
#include <vector>

#include "models/small_models.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/head_loss.h"
#include "orthant/program/print.h"
#include "orthant/program/unit_programs.h"

namespace orthant::test {

// How a graph lies over tp.
struct Over {
  int degree = 1;
  bool sequence_parallel = false;
  bool regather = false;
  bool loss_parallel = false;
};
inline constexpr Over kTp = {.degree = 2};
inline constexpr Over kSp = {.degree = 2, .sequence_parallel = true};
inline constexpr Over kRegather = {.degree = 2, .sequence_parallel = true, .regather = true};

inline GraphSpec over(GraphSpec graph, const Over& over) {
  return resolved_graph(
      std::move(graph),
      {.sequence_parallel = over.sequence_parallel, .loss_parallel = over.loss_parallel, .regather = over.regather},
      over.degree);
}

// As training compiles the unit of a resolved graph.
inline Program program_of(const GraphSpec& graph, const std::string& unit, const Remake& remake = {}) {
  return UnitPrograms(graph, remake)[static_cast<std::size_t>(graph.unit_index(unit))];
}

using Lines = std::vector<std::string>;

inline Lines lines(const Program& program, const std::vector<Operation>& list) {
  Lines found;
  for (const auto& operation : list) found.push_back(to_string(program, operation));
  return found;
}

// Operations of a name, or all starts of exchanges.
inline Lines lines(const Program& program, const std::vector<Operation>& list, const std::string& name) {
  Lines found;
  for (const auto& operation : list) {
    if (operation.name == name) found.push_back(to_string(program, operation));
  }
  return found;
}

inline Lines names(const Program& program, const std::vector<int>& values) {
  Lines found;
  for (const int value : values) found.push_back(program.values[static_cast<std::size_t>(value)].name);
  return found;
}

}  // namespace orthant::test
