// The programs of a graph's units, each compiled once for all units that run alike, and for all graphs that share a
// cache. Pure.
#pragma once

#include <memory>
#include <vector>

#include "orthant/graph/backward.h"
#include "orthant/program/program_cache.h"

namespace orthant {

class UnitPrograms {
 public:
  // Of units that can be recomputed `remake` says what is made again. `needs` of the options follow from the graph.
  // Keeps references to the graph and to the cache; without one it has its own.
  UnitPrograms(const GraphSpec& graph, Remake remake, ProgramOptions options = {}, ProgramCache* cache = nullptr);

  // Of a unit with a body. Valid as long as the cache.
  const Program& operator[](std::size_t unit);

  // Per input of a unit: its gradient is wanted.
  std::vector<bool> needs(const UnitSpec& unit) const;
  const BackwardFacts& facts() const { return facts_; }

 private:
  const GraphSpec& graph_;
  Remake remake_;
  ProgramOptions options_;
  BackwardFacts facts_;
  std::unique_ptr<ProgramCache> own_;
  ProgramCache& cache_;
};

}  // namespace orthant
