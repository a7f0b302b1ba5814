// Random graphs, stage maps and tables that are valid by construction: a table is drawn by running random actions whose
// needs are met.
#pragma once

#include <algorithm>
#include <random>
#include <set>

#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"
#include "schedule/graphs.h"

namespace orthant::test {

// Below `count`; the same on every platform.
inline int draw(std::mt19937& random, int count) {
  return static_cast<int>(random() % static_cast<unsigned>(count));
}

inline GraphSpec random_graph(std::mt19937& random) {
  GraphMaker maker("random");
  std::vector<std::string> written = {"ids"};
  std::vector<std::string> owners;
  const int units = 2 + draw(random, 7);
  for (int u = 0; u < units; ++u) {
    std::set<std::string> inputs;
    for (int i = 1 + draw(random, 3); i > 0; --i) {
      inputs.insert(written[static_cast<std::size_t>(draw(random, static_cast<int>(written.size())))]);
    }
    const std::string name = "unit." + std::to_string(u);
    const bool trainable = draw(random, 4) > 0;
    maker.unit(name, {inputs.begin(), inputs.end()}, trainable);
    written.push_back(name + ".out");
    if (!owners.empty() && draw(random, 3) == 0) {
      maker.borrow(owners[static_cast<std::size_t>(draw(random, static_cast<int>(owners.size())))] + ".weight");
    }
    if (trainable) owners.push_back(name);
    if (draw(random, 4) == 0) {
      maker.output(name + ".more", draw(random, 2) == 0);
      written.push_back(name + ".more");
    }
  }
  return maker.loss("loss", {written.back()}).done();
}

// A cut at random places, stages on random pp coordinates.
inline StageMap random_stages(const GraphSpec& graph, std::mt19937& random) {
  StageMap map;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (u == 0 || draw(random, 2) == 0) map.units.emplace_back();
    map.units.back().push_back(static_cast<int>(u));
  }
  const int pp_degree = 1 + draw(random, std::min(4, map.num_stages()));
  for (int s = 0; s < map.num_stages(); ++s) map.pp_coordinates.push_back(s < pp_degree ? s : draw(random, pp_degree));
  std::shuffle(map.pp_coordinates.begin(), map.pp_coordinates.end(), random);
  return map;
}

// Draws a table for a map; `split` of 100 backwards are B and W.
class TableDraw {
 public:
  TableDraw(const GraphSpec& graph, const StageMap& map, int microbatches, int split, std::mt19937& random)
      : map_(map), microbatches_(microbatches), random_(random), before_(map.units.size()), after_(map.units.size()) {
    for (int s = 0; s < map.num_stages() * microbatches; ++s) split_.push_back(draw(random, 100) < split);
    std::vector<int> stage_of(graph.units.size());
    for (int s = 0; s < map.num_stages(); ++s) {
      for (const int unit : map.units[static_cast<std::size_t>(s)]) stage_of[static_cast<std::size_t>(unit)] = s;
    }
    for (const ValueSpec& value : graph.values) {
      const int from = stage_of[static_cast<std::size_t>(graph.producer(value.name))];
      for (const int consumer : graph.consumers(value.name)) {
        const int to = stage_of[static_cast<std::size_t>(consumer)];
        if (from == to) continue;
        before_[static_cast<std::size_t>(to)].insert(from);
        if (value.differentiable) after_[static_cast<std::size_t>(from)].insert(to);
      }
    }
  }

  StageTable table() {
    StageTable table{map_.num_stages(), microbatches_, std::vector<std::vector<StageAction>>(pp_degree())};
    for (std::vector<StageAction> ready = ready_actions(); !ready.empty(); ready = ready_actions()) {
      const StageAction action = ready[static_cast<std::size_t>(draw(random_, static_cast<int>(ready.size())))];
      table.actions[static_cast<std::size_t>(map_.pp_coordinates[static_cast<std::size_t>(action.stage)])].push_back(
          action);
      if (action.kind == StageKind::F) forward_.insert({action.stage, action.microbatch});
      if (action.kind == StageKind::B || action.kind == StageKind::BW)
        inputs_.insert({action.stage, action.microbatch});
      if (action.kind == StageKind::W || action.kind == StageKind::BW)
        weights_.insert({action.stage, action.microbatch});
    }
    return table;
  }

 private:
  std::size_t pp_degree() const { return static_cast<std::size_t>(map_.pp_degree()); }

  std::vector<StageAction> ready_actions() const {
    std::vector<StageAction> ready;
    for (int s = 0; s < map_.num_stages(); ++s) {
      for (int m = 0; m < microbatches_; ++m) {
        const bool weights_next = m == 0 || weights_.contains({s, m - 1});
        const bool split = split_[static_cast<std::size_t>(s * microbatches_ + m)];
        if (!forward_.contains({s, m})) {
          if (all(before_, forward_, s, m)) ready.push_back({s, StageKind::F, m});
        } else if (!inputs_.contains({s, m})) {
          if (all(after_, inputs_, s, m) && (split || weights_next)) {
            ready.push_back({s, split ? StageKind::B : StageKind::BW, m});
          }
        } else if (!weights_.contains({s, m}) && weights_next) {
          ready.push_back({s, StageKind::W, m});
        }
      }
    }
    return ready;
  }

  using Passed = std::set<std::pair<int, int>>;  // stage, microbatch

  static bool all(const std::vector<std::set<int>>& stages, const Passed& passed, int stage, int microbatch) {
    return std::ranges::all_of(stages[static_cast<std::size_t>(stage)],
                               [&](int other) { return passed.contains({other, microbatch}); });
  }

  const StageMap& map_;
  int microbatches_;
  std::mt19937& random_;
  std::vector<std::set<int>> before_;  // per stage: those it reads from
  std::vector<std::set<int>> after_;   // per stage: those whose gradients it needs
  std::vector<bool> split_;
  Passed forward_, inputs_, weights_;
};

}  // namespace orthant::test
