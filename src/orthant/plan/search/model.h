// The model as the search reads it. Layers of one kind are alike, so a spec with three of them is built for every size
// that is priced, and its units stand for those of the whole: building the whole one would take longer than pricing a
// thousand configurations.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "orthant/models/model_config.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/program/program_cache.h"
#include "orthant/schedule/stages.h"

namespace orthant {

class SearchModel {
 public:
  // `sequence` is that of the plans; `on_host` as in their settings. ConfigError when the model cannot read it, and
  // when it exists on paper only.
  SearchModel(const PlanModel& model, std::int64_t sequence, DType compute, bool on_host = false);

  // Of the whole model, for one row on one rank: names, edges, what a stage may begin with.
  const GraphSpec& graph() const { return graph_; }
  // The same without what no cut depends on.
  const GraphSpec& outline() const { return outline_; }
  int num_units() const { return static_cast<int>(graph_.units.size()); }
  int most_stages() const { return most_stages_; }
  bool is_chain() const { return is_chain_; }  // every unit reads the one before it, and no other

  std::int64_t num_experts() const { return num_experts_; }  // of a layer

  double row_bytes() const;  // of the batch's fields

  // Whether `tp` ranks can share its heads, channels and words.
  bool fits_tensor(int tp) const;

  // The few units that stand for all, as they lie over tp, with the sizes of one microbatch; which of them stands for
  // each unit of the whole.
  GraphSpec resolved(const PlanSettings& settings) const;
  // Compiled ones of all sizes.
  ProgramCache* programs() const { return programs_.get(); }
  int standing_for(int unit) const { return stands_for_[static_cast<std::size_t>(unit)]; }

  // Units that borrow, each with the one that owns what it borrows.
  const std::vector<std::pair<int, int>>& lenders() const { return lenders_; }

 private:
  std::unique_ptr<ProgramCache> programs_ = std::make_unique<ProgramCache>();
  ModelConfig config_;
  ModelConfig short_config_;
  GraphSpec graph_;
  GraphSpec outline_;
  std::vector<int> stands_for_;
  std::vector<std::pair<int, int>> lenders_;
  std::int64_t num_experts_ = 0;
  int most_stages_ = 1;
  bool is_chain_ = true;
};

// Stages that begin at these units (and the number of all), each on its pp coordinate.
StageMap stage_map(const std::vector<int>& begins, std::vector<int> pp_coordinates);

// Gradients of one unit that tp ranks sum: partial ones, and those of copied heads.
struct PartialSums {
  double bytes = 0;
  double calls = 0;
};

// Per unit of a resolved graph, once a step.
std::vector<PartialSums> partial_sums(const GraphSpec& resolved, const PlanSettings& settings);

}  // namespace orthant
