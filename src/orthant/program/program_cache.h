// Programs by what they follow from: what was recorded, how parameters and values lie, what is trained, wanted and made
// again. Sizes of a microbatch are no part of it, nor is the degree of tp, so whoever prices many sizes compiles each
// program once. Pure; for one thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "orthant/program/program.h"

namespace orthant {

class ProgramCache {
 public:
  // compile_unit() of the same arguments. Valid as long as the cache.
  const Program& of(const GraphSpec& graph, const UnitSpec& unit, const ProgramOptions& options);

  int compiled() const { return compiled_; }

 private:
  struct Parameter {
    std::string name;  // within the unit; of a borrowed one the whole
    Shape shape;
    std::optional<Split> tp;
    std::string joined;
    bool trainable = true;
    bool expert = false;  // on a mesh of its own
    friend bool operator==(const Parameter&, const Parameter&) = default;
  };
  struct Edge {
    bool sequence_sharded = false;
    std::optional<Split> tp;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  struct Key {
    std::vector<bool> needs;
    std::vector<Parameter> parameters;
    std::vector<Edge> edges;  // inputs, then outputs
    SharedBody body;
    std::optional<ContextWay> context;  // where rows are cut over cp
    bool cached = false;                // attention of a generation
    int expert_degree = 1;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // Of the sharing: whether there is any, and its three choices; what is made again; in forward; training.
  using Mode = std::tuple<bool, bool, bool, bool, bool, std::vector<std::string>, bool, bool>;

  static Key key_of(const GraphSpec& graph, const UnitSpec& unit, const ProgramOptions& options);

  std::map<Mode, std::deque<std::pair<Key, Program>>> programs_;
  int compiled_ = 0;
};

}  // namespace orthant
