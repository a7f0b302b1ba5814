// The programs of a graph's units, each compiled once for all units that run alike. Pure.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "orthant/graph/backward.h"
#include "orthant/program/program.h"

namespace orthant {

class UnitPrograms {
 public:
  // Of units that can be recomputed `remake` says what is made again. `needs` of the options follow from the graph.
  // Keeps a reference to the graph.
  UnitPrograms(const GraphSpec& graph, Remake remake, ProgramOptions options = {});

  // Of a unit with a body.
  const Program& operator[](std::size_t unit);

  // Per input of a unit: its gradient is wanted.
  std::vector<bool> needs(const UnitSpec& unit) const;
  const BackwardFacts& facts() const { return facts_; }

 private:
  // What was recorded, what is trained, which inputs need a gradient, how values lie.
  struct Key {
    const Body* body;
    std::vector<bool> trained, needed, shared;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  Key key_of(const UnitSpec& unit) const;

  const GraphSpec& graph_;
  Remake remake_;
  ProgramOptions options_;
  BackwardFacts facts_;
  std::map<Key, Program> programs_;
};

}  // namespace orthant
