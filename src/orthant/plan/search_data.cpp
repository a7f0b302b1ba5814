#include "orthant/plan/search_data.h"

#include <algorithm>
#include <cmath>

#include "orthant/plan/estimate_parts.h"

namespace orthant {
namespace {

int shards_of(const DataChoice& choice) {
  return choice.zero >= 1 ? choice.fsdp : 1;
}

}  // namespace

DataPricer::DataPricer(const PlanSettings& settings, double row_bytes, const Hardware& hardware, const Stack& stack)
    : params_(static_cast<double>(bytes_of(settings.params))),
      compute_(static_cast<double>(bytes_of(settings.compute))),
      gradients_(static_cast<double>(bytes_of(settings.gradients))),
      copies_(settings.optimizer_copies),
      row_bytes_(row_bytes),
      hardware_(hardware),
      stack_(stack) {}

double DataPricer::state_bytes(const DataChoice& choice) const {
  const double shards = shards_of(choice);
  const bool apart = choice.zero >= 3 || params_ != compute_;  // the copy that is updated
  return (apart ? params_ / shards : 0) + (choice.zero < 3 ? compute_ : 0) +
         gradients_ / (choice.zero >= 2 ? shards : 1) + copies_ * params_ / shards;
}

double DataPricer::with_reserve(double bytes) const {
  return bytes * (1 + hardware_.reserve_share) + static_cast<double>(hardware_.reserve_bytes);
}

double DataPricer::least_state(double parameters, int replicas) const {
  const DataChoice choice{.fsdp = replicas, .zero = replicas > 1 ? 3 : 0};
  return with_reserve(parameters * state_bytes(choice));
}

double DataPricer::least_memory(const PipelinePrice& pipeline, int replicas) const {
  const double per_parameter = state_bytes({.fsdp = replicas, .zero = replicas > 1 ? 3 : 0});
  double most = 0;
  for (const RankTotals& rank : pipeline.ranks) most = std::max(most, per_parameter * rank.parameters + rank.held);
  return with_reserve(most);
}

// Of blocks that full parameters and gradients are kept in where ranks have shards of them.
double DataPricer::pool_bytes(const RankTotals& rank, const DataChoice& choice, std::int64_t microbatches,
                              bool stage_by_stage) const {
  double bytes = 0;
  if (choice.zero >= 3) bytes += compute_ * (rank.window - rank.twice);
  if (choice.zero < 2) return bytes;
  // Gradients are scattered as soon as they are made, or when all microbatches of a stage are done, or last of all.
  if (choice.accumulate_sharded || microbatches == 1) return bytes + gradients_ * rank.window;
  return bytes + gradients_ * (stage_by_stage ? rank.largest_stage : rank.parameters + rank.twice);
}

void DataPricer::add_memory(DataPrice& price, const PipelinePrice& pipeline, const DataChoice& choice,
                            std::int64_t microbatches, std::int64_t rows) const {
  const double per_parameter = state_bytes(choice);
  const double doubled = choice.zero < 2 ? gradients_ : 0;
  const double converted = gradients_ == params_ ? 0 : params_ / shards_of(choice);  // for the update
  double most = 0;
  double state = 0;
  for (const RankTotals& rank : pipeline.ranks) {
    const double own = per_parameter * rank.parameters + doubled * rank.twice;
    const double all = own + std::max(rank.held, converted * rank.parameters) +
                       pool_bytes(rank, choice, microbatches, pipeline.stage_by_stage);
    if (all <= most) continue;
    most = all;
    state = own;
  }
  price.memory = with_reserve(most + row_bytes_ * static_cast<double>(rows));
  price.state = with_reserve(state);
}

double DataPricer::gradient_calls(const RankTotals& rank, const DataChoice& choice) const {
  if (choice.zero >= 2) return rank.units;
  const double unit = gradients_ * rank.parameters / std::max(rank.units, 1);
  const double joined = std::max(std::ceil(static_cast<double>(DataPolicy{}.bucket_bytes) / std::max(unit, 1.0)), 1.0);
  return std::ceil(rank.units / joined);
}

DataPricer::Traffic DataPricer::gathers(const RankTotals& rank, const DataChoice& choice, double microbatches,
                                        const ScheduleChoice& schedule, std::size_t num_ranks) const {
  const double all = rank.parameters;
  double elements = all;  // zero 1 and 2: once, after the update
  if (choice.zero >= 3 && rank.units > DataPolicy{}.limit_all_gathers) {
    // Stages of one unit each take turns by groups of microbatches, so that two of them stay full meanwhile.
    const bool in_turns = schedule.name == "interleaved" && rank.units <= schedule.virtual_stages;
    const double uses = in_turns ? std::ceil(microbatches / static_cast<double>(num_ranks)) : microbatches;
    elements = uses * (2 * all - rank.unread);
    if (schedule.name == "gpipe") elements -= rank.last;
    // One stage: its last units stay full between forward and backward, its first ones until the next forward.
    if (schedule.virtual_stages == 1 && schedule.name != "gpipe") {
      elements -= microbatches * rank.last + (microbatches - 1) * rank.first;
    }
  }
  return {.calls = std::max(std::round(rank.units * elements / all), 1.0), .bytes = compute_ * elements};
}

double DataPricer::update_seconds(const RankTotals& rank, const DataChoice& choice) const {
  return hardware_.updating_seconds(stack_.optimizer_moved * rank.parameters / shards_of(choice));
}

// What is left of traffic beside so many seconds of products, and what these lose by it.
double DataPricer::exposed_seconds(double fsdp, double dp, double beside_fsdp, double beside_dp,
                                   const PlacedData& data) const {
  if (!stack_.overlaps_gradients) return fsdp + dp;
  const HiddenTime shards = overlap(fsdp, beside_fsdp, link_of(data.fsdp, hardware_));
  const HiddenTime replicas =
      overlap(dp, std::min(beside_fsdp - shards.hidden, beside_dp), link_of(data.dp, hardware_));
  return shards.exposed + replicas.exposed;
}

// Of one rank.
DataPricer::RankTail DataPricer::tail(const RankTotals& rank, const PlacedData& data, double microbatches,
                                      const ScheduleChoice& schedule, std::size_t num_ranks) const {
  const DataChoice& choice = data.choice;
  const double reductions = choice.accumulate_sharded ? microbatches : 1;
  const double calls = gradient_calls(rank, choice);
  const double gradients = gradients_ * rank.parameters;
  const double summed = gradients / shards_of(choice);
  RankTail tail;
  double fsdp = 0;
  if (choice.zero >= 1) {
    const Traffic gathered = gathers(rank, choice, microbatches, schedule, num_ranks);
    fsdp =
        calls_seconds(ExchangeKind::reduce_scatter, reductions * gradients, reductions * calls, data.fsdp, hardware_) +
        calls_seconds(ExchangeKind::all_gather, gathered.bytes, gathered.calls, data.fsdp, hardware_);
    tail.bytes = gathered.bytes + reductions * gradients;
  }
  const double dp = calls_seconds(ExchangeKind::all_reduce, summed, calls, data.dp, hardware_);
  if (data.dp.ranks > 1) tail.bytes += summed;
  const double tied = calls_seconds(ExchangeKind::all_reduce, gradients_ * rank.shared / shards_of(choice),
                                    rank.shared > 0 ? 1 : 0, tied_span(data.pp), hardware_);
  const double computing = microbatches * (rank.seconds - rank.exchanged);
  tail.seconds = exposed_seconds(fsdp, dp, choice.zero >= 3 ? computing : rank.backward, rank.backward, data) + tied +
                 reductions * rank.partial_seconds + update_seconds(rank, choice);
  return tail;
}

void DataPricer::add_time(DataPrice& price, const PipelinePrice& pipeline, const PlacedData& data,
                          std::int64_t microbatches, const ScheduleChoice& schedule) const {
  const auto& ranks = pipeline.ranks;
  const auto note = [&](const RankTotals& rank) {
    const RankTail one = tail(rank, data, static_cast<double>(microbatches), schedule, ranks.size());
    price.seconds = std::max(price.seconds, one.seconds);
    price.bytes = std::max(price.bytes, one.bytes);
  };
  note(ranks.front());
  if (ranks.size() == 1) return;
  note(ranks.back());
  const RankTotals& largest = ranks[pipeline.largest];
  if (&largest != &ranks.front() && &largest != &ranks.back()) note(largest);
}

}  // namespace orthant
