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

  // Units that lie so, for one micro batch.
  struct Sized {
    GraphSpec resolved;
    // By how often logits are made (from once on), then by kSearchedRecomputes.
    std::array<std::vector<UnitPrices>, kMostLogitsMade> prices;

    const std::vector<UnitPrices>& of(const ScheduleChoice& schedule, int pp, std::int64_t microbatches) const {
      return prices.at(static_cast<std::size_t>(logits_made(schedule.name, pp, microbatches) - 1));
    }
  };
  const Sized& sized(const UnitChoice& choice, std::int64_t micro_batch);

  // Whether rows and experts can lie so; of tp SearchModel::fits_tensor() says it.
  bool fits(const UnitChoice& choice);

  // Whether one of the other choices is in nothing slower and in nothing larger. Of equal ones the first is not
  // outdone.
  bool is_outdone(const UnitChoice& choice, const std::vector<UnitChoice>& others, std::int64_t micro_batch);

  // Of the whole model, that a rank has before replicas share them.
  double num_parameters(const UnitChoice& choice);

  // A pipeline of these units; `pp_coordinates` has one entry per stage.
  PipelineShape shape(const Sized& units, const ScheduleChoice& schedule, const std::vector<int>& pp_coordinates,
                      int pp, std::int64_t microbatches);

  // How long the table of its pipeline takes, without data parallelism and the update. Where there are many
  // microbatches, tables of fewer are simulated, and what each further round of them adds is added.
  double simulated_seconds(const PricedPoint& point);

 private:
  PlanSettings unit_settings(const UnitChoice& choice, std::int64_t micro_batch) const;
  double makespan(const ScheduleChoice& schedule, int pp, std::int64_t microbatches, const std::vector<int>& begins,
                  const StageCosts& costs) const;

  const SearchRequest& request_;
  std::shared_ptr<ModelBook> shared_;
  std::map<std::pair<UnitChoice, std::int64_t>, Sized> sized_;
  std::map<UnitChoice, bool> fits_;
  using SimulatedKey = std::tuple<UnitChoice, std::int64_t, PlanRecompute, std::string_view, int, int, std::int64_t>;
  std::map<SimulatedKey, double> simulated_;
};

}  // namespace orthant
