// Where a step went wrong whose loss or gradients are not finite: the rank, the unit and, if one is to blame, the
// parameter; and how that is told from what every rank found. Pure: nothing here communicates.
//
// Note [Who is to blame]: what is not finite spreads forward to later units, backward to earlier ones, and by sums to
// other ranks. So: a parameter that is itself not finite comes first. Then the earliest unit, in graph order, that
// wrote an output that is not finite. Then, as all forwards were good, the last unit that handed back such a gradient
// or whose own use of a parameter made one, before any sum over ranks. Then a sum that overflowed. Of several ranks
// that saw it the lowest is named.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct BadStep {
  int rank = 0;
  std::string unit;
  std::string parameter;  // empty: none is singled out
  std::string text;       // "rank 3, unit layers.2: its output is not finite"
  bool lasting = false;   // a parameter itself is not finite: no later step can be better
};

// What one rank holds or saw that is not finite. Units are numbered as in the graph.
struct RankFindings {
  struct OfUnit {
    int unit = 0;
    std::string parameter;
  };
  struct Use {  // of some parameters that lie in one buffer, by one unit
    int unit = 0;
    std::vector<std::string> parameters;  // at least one of them has a bad gradient
  };
  std::vector<OfUnit> parameters;    // the optimizer's copy, with the first unit of the rank that uses it
  std::vector<int> outputs;          // units, ascending
  std::vector<int> input_gradients;  // units whose backward handed one back, ascending
  std::vector<Use> uses;             // before any sum, by unit ascending
  std::vector<std::string> sums;     // parameters whose gradients, summed over all ranks, are not finite

  std::string to_text() const;
  static RankFindings from_text(const std::string& text);
};

// From what every rank found, by rank. See Note [Who is to blame].
BadStep blame(const GraphSpec& graph, const std::vector<RankFindings>& ranks);

}  // namespace orthant
