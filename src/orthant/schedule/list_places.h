// Lowered lists as one thing: who runs which unit, and how a fault in them is reported. What holds before the lists are
// run: every action names what exists, every unit computes on one pp coordinate.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "orthant/schedule/actions.h"
#include "orthant/schedule/graph_edges.h"
#include "orthant/schedule/grid.h"

namespace orthant {

// The surroundings of some actions of the lists, for an error.
using ShowPlaces = std::function<std::string(const std::vector<ActionPlace>&)>;

// A view: the lists, the graph and `show` outlive it.
class ListPlaces {
 public:
  // ConfigError when an action names what does not exist or a unit computes on two pp coordinates.
  ListPlaces(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, int microbatches,
             const ShowPlaces& show);

  const Action& at(ActionPlace place) const {
    return lists_[static_cast<std::size_t>(place.pp_coordinate)][static_cast<std::size_t>(place.position)];
  }
  std::string text(ActionPlace place) const { return to_string(at(place), graph_); }
  const GraphEdges& edges() const { return edges_; }
  int pp_coordinate_of(int unit) const { return pp_coordinate_of_[static_cast<std::size_t>(unit)]; }  // -1: on none
  bool forward_only() const { return forward_only_; }
  std::vector<ReducedUnit> reduced(int pp_coordinate) const {
    return reduced_units(edges_, pp_coordinate_of_, pp_coordinate);
  }

  [[noreturn]] void refuse(ActionPlace place, const std::string& why, const std::string& remedy) const;
  [[noreturn]] void refuse_missing(const Action& action, int pp_coordinate) const;
  // These actions, one on each of their pp coordinates, wait for each other.
  [[noreturn]] void refuse_cycle(const std::vector<ActionPlace>& cycle) const;

 private:
  void check_names(ActionPlace place, int microbatches) const;

  const std::vector<std::vector<Action>>& lists_;
  const GraphSpec& graph_;
  const ShowPlaces& show_;
  GraphEdges edges_;
  std::vector<int> pp_coordinate_of_;  // per unit
  bool forward_only_ = true;
};

}  // namespace orthant
