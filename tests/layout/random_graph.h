// Specs of a line, and random ones for property tests: prime sizes, blocks, copies, frozen, tied and joined parameters,
// such that every given tp degree fits. The same seed gives the same graphs. Values and costs are left empty, layouts
// do not read them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant::test {

inline ParameterSpec named_parameter(std::string name, Shape shape, std::optional<Split> split = {}) {
  ParameterSpec parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.tp = std::move(split);
  return parameter;
}

inline UnitSpec named_unit(std::string name, std::vector<ParameterSpec> parameters = {}) {
  UnitSpec unit;
  unit.name = std::move(name);
  unit.parameters = std::move(parameters);
  return unit;
}

inline GraphSpec named_graph(std::string name, std::vector<UnitSpec> units = {}) {
  GraphSpec graph;
  graph.name = std::move(name);
  graph.units = std::move(units);
  return graph;
}

class RandomGraphs {
 public:
  explicit RandomGraphs(unsigned seed) : engine_(seed) {}

  int below(int bound) { return static_cast<int>(engine_() % static_cast<unsigned>(bound)); }

  // A parameter that every degree of `tp_degrees` can cut.
  ParameterSpec parameter(const std::string& name, const std::vector<int>& tp_degrees) {
    static constexpr std::int64_t kSizes[] = {1, 2, 3, 5, 7, 11, 4, 13};
    ParameterSpec out = named_parameter(name, {});
    const int dims = below(4);
    for (int d = 0; d < dims; ++d) out.shape.push_back(kSizes[below(8)]);
    out.decay = below(2) == 0;
    out.trainable = below(4) != 0;
    if (dims == 0 || below(3) == 0) return out;
    Split split{.dim = below(dims), .blocks = {}, .granule = 1 + below(3)};
    const int blocks = 1 + below(3);
    std::int64_t size = 0;
    for (int b = 0; b < blocks; ++b) {
      split.blocks.push_back(split.granule * granules(tp_degrees));
      size += split.blocks.back();
    }
    if (blocks == 1 && below(2) == 0) split.blocks.clear();
    out.shape[static_cast<std::size_t>(split.dim)] = size;
    out.tp = split;
    return out;
  }

  GraphSpec graph(const std::vector<int>& tp_degrees) {
    GraphSpec graph = named_graph("random");
    for (int u = 0; u < 3; ++u) {
      UnitSpec unit = named_unit(fmt::format("unit{}", u));
      const int count = below(6);
      for (int p = 0; p < count; ++p) {
        unit.parameters.push_back(parameter(fmt::format("unit{}.p{}", u, p), tp_degrees));
        ParameterSpec& last = unit.parameters.back();
        last.joined = p == 0 || below(2) == 0 ? fmt::format("run{}", p) : unit.parameters[0].joined;
        if (p > 1 || !alike(last, unit.parameters[0])) last.joined = fmt::format("run{}", p);
      }
      for (int earlier = 0; earlier < u; ++earlier) {
        for (const ParameterSpec& parameter : graph.units[static_cast<std::size_t>(earlier)].parameters) {
          if (below(4) == 0 && parameter.name.ends_with("p2")) unit.borrowed.push_back(parameter.name);
          if (below(4) == 0 && parameter.name.ends_with("p3")) unit.borrowed.push_back(parameter.name);
        }
      }
      graph.units.push_back(std::move(unit));
    }
    return graph;
  }

 private:
  static bool alike(const ParameterSpec& a, const ParameterSpec& b) {
    return a.decay == b.decay && a.trainable == b.trainable;
  }

  int granules(const std::vector<int>& tp_degrees) {
    while (true) {
      const int count = 1 + below(9);
      const auto fits = [&](int degree) { return count >= degree || degree % count == 0; };
      if (std::all_of(tp_degrees.begin(), tp_degrees.end(), fits)) return count;
    }
  }

  std::mt19937 engine_;
};

}  // namespace orthant::test
