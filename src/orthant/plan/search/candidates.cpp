#include "orthant/plan/search/candidates.h"

#include <algorithm>
#include <tuple>

#include "orthant/plan/estimate/sized_run.h"

namespace orthant {
namespace {

PlanSettings common_settings(const SearchRequest& request) {
  PlanSettings settings;
  settings.global_batch = request.global_batch;
  settings.sequence = request.sequence;
  settings.split = "auto";
  settings.on_host = request.hardware.on_host;
  settings.widens_products = request.hardware.widens_products;
  settings.params = request.params;
  settings.compute = request.compute;
  settings.gradients = request.gradients;
  return settings;
}

std::tuple<float, float> wish(const Candidate& candidate, Strategy strategy) {
  const auto step = static_cast<float>(candidate.step_seconds);
  switch (strategy) {
    case Strategy::memory:
      return {static_cast<float>(candidate.memory_bytes), step};
    case Strategy::latency:
      return {static_cast<float>(candidate.microbatch_seconds), step};
    case Strategy::throughput:
      break;
  }
  return {step, 0};
}

}  // namespace

bool is_better(const Candidate& left, const Candidate& right, Strategy strategy) {
  const auto wanted = wish(left, strategy) <=> wish(right, strategy);
  if (wanted != 0) return wanted < 0;
  const auto key = [](const Candidate& candidate) {
    return std::tuple(static_cast<float>(candidate.sent_bytes), static_cast<float>(candidate.memory_bytes),
                      candidate.order);
  };
  return key(left) < key(right);
}

PlanSettings settings_of(const PricedPoint& point, const SearchRequest& request) {
  PlanSettings settings = common_settings(request);
  settings.mesh = Mesh({{Axis::pp, point.pp},
                        {Axis::dp, point.dp},
                        {Axis::fsdp, point.fsdp},
                        {Axis::cp, point.cp},
                        {Axis::tp, point.tp},
                        {Axis::ep, point.ep}});
  settings.micro_batch = point.micro_batch;
  settings.stages.schedule = point.schedule;
  settings.stages.virtual_stages = point.virtual_stages;
  settings.data.zero = point.zero;
  settings.data.accumulate_sharded = point.accumulate_sharded;
  settings.data.shard_over_context = point.shard_over_context;
  if (point.cp > 1) settings.context = point.way;
  settings.tensor = {.sequence_parallel = point.sequence_parallel,
                     .loss_parallel = point.sequence_parallel,
                     .regather = point.regather,
                     .expert_tp = point.expert_tp};
  settings.recompute = point.recompute;
  return settings;
}

UnitChoice unit_choice(const PricedPoint& point) {
  return {.tensor = {point.tp, point.sequence_parallel, point.regather},
          .context = {point.cp, point.way},
          .experts = {point.ep, point.expert_tp}};
}

Candidate candidate_of(const Plan& plan, std::int64_t order) {
  Candidate candidate;
  candidate.step_seconds = plan.time.step;
  for (const StageCost& cost : plan.costs) {
    candidate.microbatch_seconds += cost.forward + cost.inputs + cost.weights + 2 * cost.send;
  }
  candidate.memory_bytes = static_cast<double>(plan.peak_bytes());
  for (const PpTraffic& traffic : plan.traffic) {
    const double bytes =
        static_cast<double>(traffic.tp.bytes + traffic.pp.bytes + traffic.tied.bytes + traffic.dp.bytes +
                            traffic.fsdp.bytes + traffic.cp.bytes + traffic.ep.bytes);
    candidate.sent_bytes = std::max(candidate.sent_bytes, bytes);
  }
  candidate.order = order;
  return candidate;
}

std::optional<Candidate> first_that_fits(const std::vector<Candidate>& candidates, const SearchRequest& request) {
  const auto card = static_cast<double>(request.hardware.memory_bytes);
  const auto found = std::ranges::find_if(candidates, [&](const Candidate& one) { return one.memory_bytes <= card; });
  return found == candidates.end() ? std::nullopt : std::optional(*found);
}

void BestCandidates::add(const Candidate& candidate) {
  if (!wants(candidate)) return;
  kept_.push_back(candidate);
  if (kept_.size() >= 2 * most_) shrink();
}

// Leaves the best, the worst of them first.
void BestCandidates::shrink() {
  const auto better = [this](const Candidate& left, const Candidate& right) {
    return is_better(left, right, strategy_);
  };
  const auto last = kept_.begin() + static_cast<std::ptrdiff_t>(most_ - 1);
  std::ranges::nth_element(kept_, last, better);
  kept_.resize(most_);
  std::swap(kept_.front(), kept_.back());
  full_ = true;
}

std::vector<Candidate> BestCandidates::sorted() const {
  std::vector<Candidate> sorted = kept_;
  std::ranges::sort(
      sorted, [this](const Candidate& left, const Candidate& right) { return is_better(left, right, strategy_); });
  if (sorted.size() > most_) sorted.resize(most_);
  return sorted;
}

}  // namespace orthant
