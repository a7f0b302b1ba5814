#include "orthant/schedule/table_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/schedule/grid.h"

namespace orthant {
namespace {

// How far one microbatch is in one stage.
struct Passage {
  bool forward = false;
  bool inputs = false;
  bool weights = false;
  ActionPlace last;
};

class TableRules {
 public:
  TableRules(const StageTable& table, const std::vector<int>& pp_coordinates)
      : table_(table), pp_coordinates_(pp_coordinates), last_weights_(pp_coordinates.size(), -1) {}

  void check() {
    check_size();
    for (std::size_t pp_coordinate = 0; pp_coordinate < table_.actions.size(); ++pp_coordinate) {
      for (std::size_t i = 0; i < table_.actions[pp_coordinate].size(); ++i) {
        const ActionPlace place{static_cast<int>(pp_coordinate), static_cast<int>(i)};
        check_home(table_.actions[pp_coordinate][i], place);
        pass(table_.actions[pp_coordinate][i], place);
      }
    }
    check_complete();
  }

 private:
  void check_size() const {
    if (table_.num_stages != static_cast<int>(pp_coordinates_.size())) {
      throw ConfigError(fmt::format("the schedule has {} stages, the model is cut into {}", table_.num_stages,
                                    pp_coordinates_.size()),
                        {.remedy = "use the same number for both"});
    }
    const int pp_degree = pp_coordinates_.empty() ? 0 : std::ranges::max(pp_coordinates_) + 1;
    if (static_cast<int>(table_.actions.size()) != pp_degree) {
      throw ConfigError(
          fmt::format("the schedule has {} pp coordinates, the stages lie on {}", table_.actions.size(), pp_degree),
          {.remedy = fmt::format("write a schedule for {} pp coordinates", pp_degree)});
    }
    if (table_.num_microbatches < 1) {
      throw ConfigError(fmt::format("the schedule has {} microbatches", table_.num_microbatches),
                        {.remedy = "set at least one"});
    }
  }

  void check_home(const StageAction& action, ActionPlace place) const {
    if (action.stage < 0 || action.stage >= table_.num_stages) {
      refuse(action, place, fmt::format("names a stage that is not one of 0 to {}", table_.num_stages - 1),
             "name stages of this schedule only");
    }
    if (action.microbatch < 0 || action.microbatch >= table_.num_microbatches) {
      refuse(action, place, fmt::format("names a microbatch that is not one of 0 to {}", table_.num_microbatches - 1),
             "name microbatches of this schedule only");
    }
    const int home = pp_coordinates_[static_cast<std::size_t>(action.stage)];
    if (home != place.pp_coordinate) {
      refuse(action, place, fmt::format("belongs to pp {}, where stage {} lies", home, action.stage),
             fmt::format("move it to pp {}", home));
    }
  }

  void pass(const StageAction& action, ActionPlace place) {
    Passage& passage = passages_[{action.stage, action.microbatch}];
    passage.last = place;
    if (action.kind == StageKind::F) {
      if (passage.forward) refuse(action, place, "runs a second time", "keep one of the two");
      passage.forward = true;
      return;
    }
    if (action.kind == StageKind::W) {
      if (!passage.inputs) refuse_without(action, place, StageKind::B);
    } else {
      if (!passage.forward) refuse_without(action, place, StageKind::F);
      if (passage.inputs) refuse(action, place, "is a second backward of that microbatch", "keep one of the two");
      passage.inputs = true;
    }
    if (action.kind != StageKind::B) add_weights(action, place, passage);
  }

  void add_weights(const StageAction& action, ActionPlace place, Passage& passage) {
    if (passage.weights) refuse(action, place, "is a second weight gradient of that microbatch", "keep one of the two");
    passage.weights = true;
    int& last = last_weights_[static_cast<std::size_t>(action.stage)];
    if (action.microbatch < last) {
      refuse(action, place,
             fmt::format("comes after the weight gradient of microbatch {}; those of a stage are added in microbatch "
                         "order",
                         last),
             fmt::format("move it before that of microbatch {}", last));
    }
    last = action.microbatch;
  }

  void check_complete() const {
    const bool forward_only = is_forward_only(table_);
    for (int stage = 0; stage < table_.num_stages; ++stage) {
      for (int microbatch = 0; microbatch < table_.num_microbatches; ++microbatch) {
        const auto found = passages_.find({stage, microbatch});
        if (found == passages_.end()) refuse_missing({stage, StageKind::F, microbatch}, "", {});
        const auto& [forward, inputs, weights, last] = found->second;
        if (forward_only) continue;
        if (!inputs) refuse_missing({stage, StageKind::BW, microbatch}, " after its forward", {last});
        if (!weights) refuse_missing({stage, StageKind::W, microbatch}, " after its backward for the inputs", {last});
      }
    }
  }

  [[noreturn]] void refuse(const StageAction& action, ActionPlace place, const std::string& why,
                           const std::string& remedy) const {
    throw ConfigError(fmt::format("{} at position {} of pp {} {}\n{}", to_string(action), place.position,
                                  place.pp_coordinate, why, marked_grid(table_, {place})),
                      {.remedy = remedy});
  }

  [[noreturn]] void refuse_without(const StageAction& action, ActionPlace place, StageKind needed) const {
    const std::string before = to_string(StageAction{action.stage, needed, action.microbatch});
    refuse(action, place, fmt::format("has no {} before it", before), fmt::format("put {} before it", before));
  }

  [[noreturn]] void refuse_missing(const StageAction& action, std::string_view where,
                                   const std::vector<ActionPlace>& marks) const {
    const int pp_coordinate = pp_coordinates_[static_cast<std::size_t>(action.stage)];
    throw ConfigError(fmt::format("{} is missing on pp {}{}\n{}", to_string(action), pp_coordinate, where,
                                  marked_grid(table_, marks)),
                      {.remedy = fmt::format("add {} to pp {}", to_string(action), pp_coordinate)});
  }

  const StageTable& table_;
  const std::vector<int>& pp_coordinates_;           // per stage
  std::map<std::pair<int, int>, Passage> passages_;  // by stage and microbatch
  std::vector<int> last_weights_;                    // per stage: the last microbatch with a weight gradient
};

}  // namespace

void check_table(const StageTable& table, const std::vector<int>& pp_coordinates) {
  TableRules(table, pp_coordinates).check();
}

void check_in_flight(const StageTable& table, const std::vector<int>& bounds) {
  if (bounds.size() != table.actions.size()) {
    throw InternalError(fmt::format("{} pp coordinates have {} bounds", table.actions.size(), bounds.size()));
  }
  const bool keeps = !is_forward_only(table);
  for (std::size_t pp_coordinate = 0; pp_coordinate < bounds.size(); ++pp_coordinate) {
    int in_flight = 0;
    for (std::size_t i = 0; i < table.actions[pp_coordinate].size(); ++i) {
      const StageAction& action = table.actions[pp_coordinate][i];
      if (action.kind == StageKind::F && ++in_flight > bounds[pp_coordinate]) {
        const ActionPlace place{static_cast<int>(pp_coordinate), static_cast<int>(i)};
        throw ConfigError(fmt::format("{} at position {} of pp {} makes it keep the activations of {} microbatches "
                                      "at once; the bound is {}\n{}",
                                      to_string(action), place.position, pp_coordinate, in_flight,
                                      bounds[pp_coordinate], marked_grid(table, {place})),
                          {.remedy = "put a backward before it, or allow more"});
      }
      if (action.kind == StageKind::BW || action.kind == StageKind::W || !keeps) --in_flight;
    }
  }
}

}  // namespace orthant
