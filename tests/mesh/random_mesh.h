// Random meshes for property tests: small degrees, any order, sometimes experts. The same seed gives the same meshes.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "orthant/mesh/mesh.h"

namespace orthant::test {

class RandomMeshes {
 public:
  explicit RandomMeshes(unsigned seed) : engine_(seed) {}

  int below(int bound) { return static_cast<int>(engine_() % static_cast<unsigned>(bound)); }

  Mesh next() {
    Degrees degrees;
    for (Axis axis : kMeshAxes) degrees[axis] = below(2) == 0 ? 1 : 1 + below(4);
    AxisOrder order = kDefaultOrder;
    if (below(3) != 0) std::shuffle(order.begin(), order.end(), engine_);
    std::vector<int> experts;
    const int stage = Mesh(degrees).stage_size();
    for (int ep = 1; ep <= stage; ++ep) {
      if (stage % ep == 0) experts.push_back(ep);
    }
    degrees[Axis::ep] = experts[below(static_cast<int>(experts.size()))];
    return Mesh(degrees, order_text(order));
  }

  AxisSet next_axes() {
    AxisSet axes;
    for (Axis axis : kMeshAxes) {
      if (below(2) == 0) axes = axes | axis;
    }
    return axes;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace orthant::test
