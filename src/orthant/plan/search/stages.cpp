#include "orthant/plan/search/stages.h"

#include <algorithm>

#include "orthant/plan/estimate/estimate_parts.h"

namespace orthant {
namespace {

double sum_of(const std::vector<PricedExchange>& exchanges) {
  double bytes = 0;
  for (const PricedExchange& exchange : exchanges) bytes += exchange.bytes;
  return bytes;
}

std::size_t at(StageKind kind) {
  return static_cast<std::size_t>(kind);
}

// In its forward.
bool makes_gradients(const UnitWork& work) {
  return work.in_forward && work.logits_made == 1;
}

UnitTotals totals_of(const UnitWork& work, const UnitSeconds& seconds, PlanRecompute recompute) {
  return {.parameters = work.parameters,
          .experts = work.expert_parameters,
          .kept = makes_gradients(work) ? work.in_forward->kept
                                        : work.kept_bytes[static_cast<std::size_t>(recompute)] + work.logits_bytes,
          .deferred = work.deferred_bytes,
          .forward = seconds.forward,
          .inputs = seconds.inputs,
          .weights = seconds.weights,
          .exchanged = seconds.exchanged.total(),
          .exchanged_bytes =
              sum_of(work.forward_exchanges) + sum_of(work.backward_exchanges) + sum_of(work.remade_exchanges)};
}

// By kind of action.
std::array<double, 4> running_of(const UnitWork& work) {
  if (makes_gradients(work)) return {work.in_forward->forward, 0, 0, work.in_forward->backward};
  return {work.forward_bytes, work.inputs_bytes, work.weights_bytes, work.backward_bytes + work.remade_bytes};
}

}  // namespace

UnitTotals& UnitTotals::operator+=(const UnitTotals& other) {
  parameters += other.parameters;
  experts += other.experts;
  kept += other.kept;
  deferred += other.deferred;
  forward += other.forward;
  inputs += other.inputs;
  weights += other.weights;
  exchanged += other.exchanged;
  exchanged_bytes += other.exchanged_bytes;
  partials += other.partials;
  partial_calls += other.partial_calls;
  return *this;
}

UnitTotals operator-(const UnitTotals& after, const UnitTotals& before) {
  return {.parameters = after.parameters - before.parameters,
          .experts = after.experts - before.experts,
          .kept = after.kept - before.kept,
          .deferred = after.deferred - before.deferred,
          .forward = after.forward - before.forward,
          .inputs = after.inputs - before.inputs,
          .weights = after.weights - before.weights,
          .exchanged = after.exchanged - before.exchanged,
          .exchanged_bytes = after.exchanged_bytes - before.exchanged_bytes,
          .partials = after.partials - before.partials,
          .partial_calls = after.partial_calls - before.partial_calls};
}

UnitPrices::UnitPrices(const SearchModel& model, const ModelWork& work, const std::vector<PartialSums>& partials,
                       const PlanSettings& settings, const Hardware& hardware) {
  const ExchangeSpans spans = spans_of(settings.mesh, hardware.cards_per_node);
  for (std::size_t u = 0; u < work.size(); ++u) {
    kinds_.push_back(totals_of(work[u], unit_seconds(work[u], settings, spans, hardware), settings.recompute));
    kinds_.back().partials = partials[u].bytes;
    kinds_.back().partial_calls = partials[u].calls;
  }
  before_.emplace_back();
  for (int u = 0; u < model.num_units(); ++u) {
    const auto like = static_cast<std::size_t>(model.standing_for(u));
    const UnitWork& unit = work[like];
    before_.push_back(before_.back());
    before_.back() += kinds_[like];
    units_.push_back({.parameters = unit.parameters,
                      .size = size_index(unit.parameters),
                      .borrowed = unit.borrowed,
                      .read = unit.role != UnitRole::embedding,
                      .kept = kinds_[like].kept,
                      .deferred = unit.deferred_bytes,
                      .running = running_of(unit),
                      .output = unit.output_bytes});
  }
}

// Beyond what SizeCounts has, sizes count as the last one.
std::size_t UnitPrices::size_index(double parameters) {
  const auto index = static_cast<std::size_t>(std::ranges::find(sizes_, parameters) - sizes_.begin());
  if (index == sizes_.size()) sizes_.push_back(parameters);
  return std::min(index, SizeCounts{}.size() - 1);
}

bool UnitPrices::is_matched_by(const UnitPrices& other) const {
  const auto matched = [](const UnitTotals& here, const UnitTotals& there) {
    return there.forward <= here.forward && there.inputs <= here.inputs && there.weights <= here.weights &&
           there.kept <= here.kept && there.deferred <= here.deferred;
  };
  const auto leaner = [](const Unit& here, const Unit& there) {
    return std::ranges::equal(there.running, here.running, std::ranges::less_equal());
  };
  return std::ranges::equal(kinds_, other.kinds_, matched) && std::ranges::equal(units_, other.units_, leaner);
}

double UnitPrices::window(const SizeCounts& counts) const {
  double parameters = 0;
  for (std::size_t i = 0; i < std::min(counts.size(), sizes_.size()); ++i) {
    parameters += std::min(counts[i], 2) * sizes_[i];
  }
  return parameters;
}

void UnitPrices::add_running(StageTotals& stage, std::size_t begin, std::size_t end) const {
  const auto note = [&](StageKind kind, double bytes) {
    stage.running[at(kind)] = std::max(stage.running[at(kind)], bytes);
  };
  double kept = 0;      // of the units behind: forwards do not have it yet, backwards no more
  double deferred = 0;  // likewise
  for (std::size_t u = end; u-- > begin;) {
    const Unit& unit = units_[u];
    note(StageKind::F, unit.running[at(StageKind::F)] - kept);
    note(StageKind::BW, unit.running[at(StageKind::BW)] - kept);
    note(StageKind::B, unit.running[at(StageKind::B)] - kept + deferred);
    note(StageKind::W, unit.running[at(StageKind::W)] - deferred);
    kept += unit.kept;
    deferred += unit.deferred;
  }
}

StageTotals UnitPrices::stage(int begin, int end) const {
  const auto first = static_cast<std::size_t>(begin);
  const auto last = static_cast<std::size_t>(end);
  StageTotals stage{.sum = before_[last] - before_[first], .output = units_[last - 1].output};
  add_running(stage, first, last);
  double previous = 0;
  for (std::size_t u = first; u < last; ++u) {
    const Unit& unit = units_[u];
    if (unit.parameters == 0) continue;
    ++stage.sizes[unit.size];
    if (stage.units++ < 2 && unit.read) stage.first += unit.parameters;
    if (!unit.read) stage.unused_in_backward += unit.parameters;
    stage.last = previous + unit.parameters;
    previous = unit.parameters;
  }
  return stage;
}

const std::vector<int>& CutCache::cut(const GraphSpec& resolved, int stages) {
  std::vector<double> flops;
  for (const UnitSpec& unit : resolved.units) {
    flops.push_back(unit.cost.forward_flops + unit.cost.input_flops + unit.cost.weight_flops);
  }
  const double most = std::max(std::ranges::max(flops), 1.0);
  std::vector<float> shares;
  for (const double cost : flops) shares.push_back(static_cast<float>(cost / most));
  const auto [found, made] = cuts_.try_emplace({std::move(shares), stages});
  if (!made) return found->second;
  std::vector<double> costs;
  for (int u = 0; u < model_.num_units(); ++u) costs.push_back(flops[static_cast<std::size_t>(model_.standing_for(u))]);
  for (const auto& units : split_stages(model_.outline(), stages, {.unit_costs = costs, .sizes = &sizes_}).map.units) {
    found->second.push_back(units.front());
  }
  found->second.push_back(model_.num_units());
  return found->second;
}

}  // namespace orthant
