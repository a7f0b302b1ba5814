#include "orthant/plan/search/prices.h"

#include <algorithm>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/plan/search/candidates.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/simulate.h"

namespace orthant {

PriceBook::PriceBook(const SearchRequest& request, std::shared_ptr<ModelBook> shared)
    : request_(request),
      shared_(shared ? std::move(shared)
                     : std::make_shared<ModelBook>(request.model, request.sequence, request.compute,
                                                   request.hardware.on_host)) {}

// With as many replicas as experts need ranks.
PlanSettings PriceBook::unit_settings(const UnitChoice& choice, std::int64_t micro_batch) const {
  return settings_of({.dp = choice.experts.ep,
                      .cp = choice.context.cp,
                      .tp = choice.tensor.tp,
                      .ep = choice.experts.ep,
                      .micro_batch = micro_batch,
                      .schedule = "1f1b",
                      .sequence_parallel = choice.tensor.sequence_parallel,
                      .regather = choice.tensor.regather,
                      .way = choice.context.way,
                      .expert_tp = choice.experts.expert_tp},
                     request_);
}

const PriceBook::Sized& PriceBook::sized(const UnitChoice& choice, std::int64_t micro_batch) {
  const auto [found, made] = sized_.try_emplace({choice, micro_batch});
  Sized& sized = found->second;
  if (!made) return sized;
  PlanSettings settings = unit_settings(choice, micro_batch);
  sized.resolved = model().resolved(settings);
  const auto partials = partial_sums(sized.resolved, settings);
  for (const PlanRecompute recompute : kSearchedRecomputes) {
    settings.recompute = recompute;
    ModelWork work = program_work(sized.resolved, settings, model().programs());
    for (std::size_t again = 0; again < sized.prices.size(); ++again) {
      for (UnitWork& unit : work) {
        if (unit.in_forward) unit.logits_made = static_cast<int>(again) + 1;
      }
      sized.prices[again].emplace_back(model(), work, partials, settings, request_.hardware);
    }
  }
  return sized;
}

bool PriceBook::fits(const UnitChoice& choice) {
  if (choice.context.cp == 1 && choice.experts == ExpertChoice{}) return true;
  const auto [found, made] = fits_.try_emplace(choice);
  if (!made) return found->second;
  try {
    model().resolved(unit_settings(choice, 1));
    found->second = true;
  } catch (const ConfigError&) {
    found->second = false;
  }
  return found->second;
}

bool PriceBook::is_outdone(const UnitChoice& choice, const std::vector<UnitChoice>& others, std::int64_t micro_batch) {
  const auto matched_by = [&](const UnitChoice& here, const UnitChoice& there) {
    const auto& left = sized(here, micro_batch).prices;
    const auto& right = sized(there, micro_batch).prices;
    return std::ranges::equal(left, right, [](const auto& prices, const auto& theirs) {
      return std::ranges::equal(prices, theirs, [](const auto& a, const auto& b) { return a.is_matched_by(b); });
    });
  };
  return std::ranges::any_of(others, [&](const UnitChoice& other) {
    return other != choice && matched_by(choice, other) && (other < choice || !matched_by(other, choice));
  });
}

double PriceBook::num_parameters(const UnitChoice& choice) {
  const UnitPrices& units = sized(choice, 1).prices.front().front();
  double parameters = units.stage(0, model().num_units()).sum.parameters;
  for (const auto& [unit, lender] : model().lenders()) parameters -= units.borrowed(unit);
  return parameters;
}

PipelineShape PriceBook::shape(const Sized& units, const ScheduleChoice& schedule,
                               const std::vector<int>& pp_coordinates, int pp, std::int64_t microbatches) {
  const auto& begins = shared_->cuts.cut(units.resolved, static_cast<int>(pp_coordinates.size()));
  return {.schedule = schedule,
          .microbatches = microbatches,
          .begins = begins,
          .pp_coordinates = pp_coordinates,
          .moments = shared_->tables.moments(schedule, pp, microbatches, begins)};
}

double PriceBook::makespan(const ScheduleChoice& schedule, int pp, std::int64_t microbatches,
                           const std::vector<int>& begins, const StageCosts& costs) const {
  const auto count = static_cast<int>(microbatches);
  if (model().is_chain() || pp == 1) {
    const StageTable table = make_schedule(schedule.name, pp, schedule.virtual_stages, count).table;
    return simulate(table, chain_edges(table.num_stages), costs).makespan;
  }
  const StageMap map = stage_map(begins, schedule_placement(schedule.name, pp, schedule.virtual_stages));
  return simulate(make_schedule(schedule.name, map, model().graph(), count), stage_edges(map, model().graph()), costs)
      .makespan;
}

double PriceBook::simulated_seconds(const PricedPoint& point) {
  const std::int64_t microbatches = request_.global_batch / (point.dp * point.fsdp) / point.micro_batch;
  const auto [found, made] = simulated_.try_emplace({unit_choice(point), point.micro_batch, point.recompute,
                                                     point.schedule, point.virtual_stages, point.pp, microbatches});
  if (!made) return found->second;
  const Sized& units = sized(unit_choice(point), point.micro_batch);
  const auto mode = std::ranges::find(kSearchedRecomputes, point.recompute) - kSearchedRecomputes.begin();
  const auto& begins = shared_->cuts.cut(units.resolved, point.pp * point.virtual_stages);
  const Span pp = span_of(settings_of(point, request_).mesh, Axis::pp, request_.hardware.cards_per_node);
  const ScheduleChoice schedule{point.schedule, point.virtual_stages};
  const UnitPrices& prices = units.of(schedule, point.pp, microbatches)[static_cast<std::size_t>(mode)];
  StageCosts costs;
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) {
    const StageTotals stage = prices.stage(begins[s], begins[s + 1]);
    costs.push_back(
        {stage.sum.forward, stage.sum.inputs, stage.sum.weights, message_seconds(stage.output, pp, request_.hardware)});
  }
  const std::int64_t few = 4 * point.pp + microbatches % point.pp;  // beyond, rounds of pp of them are alike
  const std::int64_t more = few + point.pp;
  if (microbatches <= more) return found->second = makespan(schedule, point.pp, microbatches, begins, costs);
  const double first = makespan(schedule, point.pp, few, begins, costs);
  const double round = makespan(schedule, point.pp, more, begins, costs) - first;
  return found->second = first + round * static_cast<double>((microbatches - few) / point.pp);
}

}  // namespace orthant
