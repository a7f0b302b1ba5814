// Prices of units by their sizes, cuts and tables: made once and shared by all configurations that have them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "orthant/plan/search/pipeline.h"
#include "orthant/plan/search/search.h"

namespace orthant {

// What `train` has.
inline constexpr std::array<PlanRecompute, 3> kSearchedRecomputes = {PlanRecompute::none, PlanRecompute::selective,
                                                                     PlanRecompute::full};

// What depends on the model, its sequences and the kind of machine alone, for searches that differ in something else.
struct ModelBook {
  ModelBook(const PlanModel& plan_model, std::int64_t sequence, DType compute, bool on_host)
      : model(plan_model, sequence, compute, on_host), cuts(model), tables(model) {}

  SearchModel model;
  CutCache cuts;
  TableCache tables;
};

class PriceBook {
 public:
  // The request outlives it. `shared` is of its model, sequence, compute dtype and kind of machine. ConfigError for a
  // model that cannot be trained, or not on such sequences.
  explicit PriceBook(const SearchRequest& request, std::shared_ptr<ModelBook> shared = nullptr);

  const SearchModel& model() const { return shared_->model; }
  const std::shared_ptr<ModelBook>& shared() const { return shared_; }

  // Units of one tensor choice and micro batch.
  struct Sized {
    GraphSpec resolved;
    // By how often logits are made (from once on), then by kSearchedRecomputes.
    std::array<std::vector<UnitPrices>, kMostLogitsMade> prices;

    const std::vector<UnitPrices>& of(const ScheduleChoice& schedule, int pp, std::int64_t microbatches) const {
      return prices.at(static_cast<std::size_t>(logits_made(schedule.name, pp, microbatches) - 1));
    }
  };
  const Sized& sized(const TensorChoice& tensor, std::int64_t micro_batch);

  // Of the whole model, that a tp rank has.
  double num_parameters(int tp);

  // A pipeline of these units; `pp_coordinates` has one entry per stage.
  PipelineShape shape(const Sized& units, const ScheduleChoice& schedule, const std::vector<int>& pp_coordinates,
                      int pp, std::int64_t microbatches);

  // How long the table of its pipeline takes, without data parallelism and the update. Where there are many
  // microbatches, tables of fewer are simulated, and what each further round of them adds is added.
  double simulated_seconds(const PricedPoint& point);

 private:
  double makespan(const ScheduleChoice& schedule, int pp, std::int64_t microbatches, const std::vector<int>& begins,
                  const StageCosts& costs) const;

  const SearchRequest& request_;
  std::shared_ptr<ModelBook> shared_;
  std::map<std::tuple<int, bool, bool, std::int64_t>, Sized> sized_;
  using SimulatedKey =
      std::tuple<int, bool, bool, std::int64_t, PlanRecompute, std::string_view, int, int, std::int64_t>;
  std::map<SimulatedKey, double> simulated_;
};

}  // namespace orthant
