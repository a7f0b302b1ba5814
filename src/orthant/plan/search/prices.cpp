#include "orthant/plan/search/prices.h"

#include <algorithm>
#include <utility>

#include "orthant/plan/search/candidates.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/simulate.h"

namespace orthant {

PriceBook::PriceBook(const SearchRequest& request, std::shared_ptr<ModelBook> shared)
    : request_(request),
      shared_(shared ? std::move(shared)
                     : std::make_shared<ModelBook>(request.model, request.sequence, request.compute,
                                                   request.hardware.on_host)) {}

const PriceBook::Sized& PriceBook::sized(const TensorChoice& tensor, std::int64_t micro_batch) {
  const auto [found, made] = sized_.try_emplace({tensor.tp, tensor.sequence_parallel, tensor.regather, micro_batch});
  Sized& sized = found->second;
  if (!made) return sized;
  PlanSettings settings = settings_of({.tp = tensor.tp,
                                       .micro_batch = micro_batch,
                                       .schedule = "1f1b",
                                       .sequence_parallel = tensor.sequence_parallel,
                                       .regather = tensor.regather},
                                      request_);
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

double PriceBook::num_parameters(int tp) {
  const UnitPrices& units = sized({.tp = tp}, 1).prices.front().front();
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
  const auto [found, made] =
      simulated_.try_emplace({point.tp, point.sequence_parallel, point.regather, point.micro_batch, point.recompute,
                              point.schedule, point.virtual_stages, point.pp, microbatches});
  if (!made) return found->second;
  const Sized& units = sized({point.tp, point.sequence_parallel, point.regather}, point.micro_batch);
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
