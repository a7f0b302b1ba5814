// The simulator against the lists that run: a table's times are those of its lowered lists, unit by unit, with messages
// sent and received where the lists say.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "orthant/schedule/channel.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/pipeline.h"
#include "orthant/schedule/simulate.h"
#include "schedule/graphs.h"

namespace orthant {
namespace simulate_lists_test {

constexpr double kSend = 0.5;

// A chain of units of different times, and a loss that takes none.
GraphSpec chain(int units) {
  test::GraphMaker maker("chain");
  std::string before = "ids";
  for (int u = 0; u < units; ++u) {
    const std::string name = "u" + std::to_string(u);
    maker.unit(name, {before}).flops(1 + u % 3, 2 + u % 2, 1 + u % 4);
    before = name + ".out";
  }
  return maker.loss("loss", {before}).flops(0, 0, 0).done();
}

// Runs the lists of all pp coordinates; units take the times that their FLOPs say.
class ListTimes {
 public:
  ListTimes(const StageTable& table, const StageMap& map, const GraphSpec& graph) : graph_(graph) {
    for (int pp = 0; pp < static_cast<int>(table.actions.size()); ++pp) lists_.push_back(lower(table, map, graph, pp));
    now_.resize(lists_.size());
    next_.resize(lists_.size());
  }

  double makespan() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t pp = 0; pp < lists_.size(); ++pp) {
        while (next_[pp] < lists_[pp].size() && run(pp, lists_[pp][next_[pp]])) {
          ++next_[pp];
          moved = true;
        }
      }
    }
    for (std::size_t pp = 0; pp < lists_.size(); ++pp) EXPECT_EQ(next_[pp], lists_[pp].size()) << "pp " << pp;
    return *std::ranges::max_element(now_);
  }

 private:
  double seconds(const Action& action) const {
    const UnitCost& cost = graph_.units[static_cast<std::size_t>(action.unit)].cost;
    switch (action.kind) {
      case ActionKind::forward:
        return cost.forward_flops;
      case ActionKind::backward:
        return cost.input_flops + cost.weight_flops;
      case ActionKind::backward_input:
        return cost.input_flops;
      case ActionKind::backward_weight:
        return cost.weight_flops;
      default:
        return 0;
    }
  }

  // False while it waits for a message.
  bool run(std::size_t pp, const Action& action) {
    const auto here = static_cast<int>(pp);
    if (action.kind == ActionKind::send || action.kind == ActionKind::send_gradient) {
      arrives_[{here, action.peer, message_of(action)}] = now_[pp] + kSend;
    } else if (action.kind == ActionKind::receive || action.kind == ActionKind::receive_gradient) {
      const auto sent = arrives_.find({action.peer, here, message_of(action)});
      if (sent == arrives_.end()) return false;
      now_[pp] = std::max(now_[pp], sent->second);
    } else {
      now_[pp] += seconds(action);
    }
    return true;
  }

  const GraphSpec& graph_;
  std::vector<std::vector<Action>> lists_;
  std::vector<double> now_;
  std::vector<std::size_t> next_;
  std::map<std::tuple<int, int, Message>, double> arrives_;
};

void expect_times_of_lists(const StageTable& table, const StageMap& map, const GraphSpec& graph,
                           const std::string& what) {
  StageCosts costs = flop_costs(map, graph);
  for (StageCost& cost : costs) cost.send = kSend;
  EXPECT_DOUBLE_EQ(simulate(table, stage_edges(map, graph), costs).makespan, ListTimes(table, map, graph).makespan())
      << what;
}

TEST(SimulateLists, TablesTakeTheTimeOfTheListsThatRun) {
  for (const auto& name : schedule_names()) {
    for (const int pp : {2, 3, 4}) {
      for (const int microbatches : {pp, 2 * pp, 3 * pp}) {
        const auto placement = schedule_placement(name, pp);
        const auto stages = static_cast<int>(placement.size());
        const GraphSpec graph = chain(3 * stages);
        StageMap map{.units = {}, .pp_coordinates = placement};
        for (int s = 0; s < stages; ++s) map.units.push_back({3 * s, 3 * s + 1, 3 * s + 2});
        map.units.back().push_back(3 * stages);
        const StageTable table = make_schedule(name, map, graph, microbatches);
        expect_times_of_lists(table, map, graph,
                              name + " pp " + std::to_string(pp) + " microbatches " + std::to_string(microbatches));
      }
    }
  }
}

TEST(SimulateLists, SoDoThoseOfBranchesAndSkips) {
  for (GraphSpec graph : {test::branches(), test::fan_out(), test::skips()}) {
    for (UnitSpec& unit : graph.units) unit.cost.forward_flops = unit.cost.input_flops = unit.cost.weight_flops = 1;
    for (const char* name : {"gpipe", "1f1b", "zbh1"}) {
      const Pipeline pipeline = make_pipeline(graph, /*pp=*/2, /*microbatches=*/6, {.schedule = name});
      expect_times_of_lists(pipeline.table, pipeline.map, graph, graph.name + " " + name);
    }
  }
}

}  // namespace simulate_lists_test
}  // namespace orthant
