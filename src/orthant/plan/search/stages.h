// Sums over the stages of a model, so that a configuration is priced by adding numbers per pp coordinate. The cut is
// the one that `train` makes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/unit_time.h"
#include "orthant/plan/search/model.h"
#include "orthant/schedule/stage_split.h"
#include "orthant/schedule/stage_table.h"

namespace orthant {

// Of one or several units, for one microbatch on one rank.
struct UnitTotals {
  double parameters = 0;
  double experts = 0;   // of these, the ones that lie on a mesh of their own
  double kept = 0;      // bytes, by the recompute mode asked for; logits included
  double deferred = 0;  // bytes
  double forward = 0;   // seconds, of these three
  double inputs = 0;
  double weights = 0;
  double exchanged = 0;        // of them, waiting for tp, cp and ep
  double exchanged_bytes = 0;  // over these
  double partials = 0;         // bytes of gradients that tp ranks sum, once a step
  double partial_calls = 0;

  UnitTotals& operator+=(const UnitTotals& other);
  friend UnitTotals operator-(const UnitTotals& after, const UnitTotals& before);
  double seconds() const { return forward + inputs + weights; }
};

// How many units have parameters of each size that occurs in a model. Models have few kinds of units.
using SizeCounts = std::array<int, 12>;

struct StageTotals {
  UnitTotals sum;
  // Bytes besides what the stage keeps when an action begins (of a forward: when it ends), at the action's worst
  // moment: of a unit that runs, less what other units have let go of by then, or do not keep yet. By kind of action.
  std::array<double, 4> running = {};
  SizeCounts sizes = {};
  double output = 0;              // bytes that travel to the next stage
  double unused_in_backward = 0;  // parameters whose values no backward pass reads
  double first = 0;               // parameters of its first two units whose backward reads them
  double last = 0;                // parameters of its last two units
  int units = 0;                  // that have parameters
};

// A model's units priced for one tensor choice, micro batch and recompute mode.
class UnitPrices {
 public:
  // Work and sums of the units that stand for all.
  UnitPrices(const SearchModel& model, const ModelWork& work, const std::vector<PartialSums>& partials,
             const PlanSettings& settings, const Hardware& hardware);

  // Units [begin, end).
  StageTotals stage(int begin, int end) const;
  double borrowed(int unit) const { return units_[static_cast<std::size_t>(unit)].borrowed; }

  // Whether no unit takes longer or needs more than here; `other` is of the same model.
  bool is_matched_by(const UnitPrices& other) const;

  // Parameters of at most two units of each size: what is full at one time where units are gathered one after another.
  double window(const SizeCounts& counts) const;

 private:
  struct Unit {
    double parameters = 0;
    std::size_t size = 0;  // in sizes_
    double borrowed = 0;
    bool read = true;  // its backward reads parameters
    double kept = 0;
    double deferred = 0;
    std::array<double, 4> running = {};  // bytes besides, by kind of action
    double output = 0;
  };

  std::size_t size_index(double parameters);
  void add_running(StageTotals& stage, std::size_t begin, std::size_t end) const;

  std::vector<UnitTotals> kinds_;   // of the units that stand for all
  std::vector<UnitTotals> before_;  // sums over the units before each, and over all
  std::vector<Unit> units_;
  std::vector<double> sizes_;  // parameters of units, each once
};

// Where stages begin, and the number of units behind the last. Cuts by FLOPs in the same proportions are made once.
class CutCache {
 public:
  explicit CutCache(const SearchModel& model) : model_(model), sizes_(model.graph()) {}

  // `resolved` as SearchModel has it.
  const std::vector<int>& cut(const GraphSpec& resolved, int stages);

 private:
  const SearchModel& model_;
  CutSizes sizes_;
  std::map<std::pair<std::vector<float>, int>, std::vector<int>> cuts_;
};

}  // namespace orthant
