#include "orthant/plan/search/data.h"

#include <algorithm>
#include <cmath>

#include "orthant/plan/estimate/estimate_parts.h"

namespace orthant {
DataPricer::DataPricer(const PlanSettings& settings, double row_bytes, const Hardware& hardware, const Stack& stack)
    : params_(static_cast<double>(bytes_of(settings.params))),
      compute_(static_cast<double>(bytes_of(settings.compute))),
      gradients_(static_cast<double>(bytes_of(settings.gradients))),
      copies_(settings.optimizer_copies),
      row_bytes_(row_bytes),
      hardware_(hardware),
      stack_(stack) {}

double DataPricer::state_bytes(const ParameterShares& shares) const {
  const double shards = shares.shards;
  const bool apart = shares.zero >= 3 || params_ != compute_;  // the copy that is updated
  return (apart ? params_ / shards : 0) + (shares.zero < 3 ? compute_ : 0) +
         gradients_ / (shares.zero >= 2 ? shards : 1) + copies_ * params_ / shards;
}

double DataPricer::with_reserve(double bytes) const {
  return bytes * (1 + hardware_.reserve_share) + static_cast<double>(hardware_.reserve_bytes);
}

double DataPricer::least_state(double parameters, int shards) const {
  return with_reserve(parameters * state_bytes({.zero = shards > 1 ? 3 : 0, .shards = shards}));
}

double DataPricer::least_memory(const PipelinePrice& pipeline, int shards) const {
  const double per_parameter = state_bytes({.zero = shards > 1 ? 3 : 0, .shards = shards});
  double most = 0;
  for (const PpTotals& totals : pipeline.pp_totals)
    most = std::max(most, per_parameter * totals.parameters + totals.held);
  return with_reserve(most);
}

// Of blocks that full parameters and gradients are kept in where ranks have shards of them.
double DataPricer::pool_bytes(const PpTotals& totals, const DataChoice& choice, std::int64_t microbatches,
                              bool stage_by_stage) const {
  double bytes = 0;
  if (choice.zero >= 3) bytes += compute_ * (totals.window - totals.tied_twice);
  if (choice.zero < 2) return bytes;
  // Gradients are scattered as soon as they are made, or when all microbatches of a stage are done, or last of all.
  if (choice.accumulate_sharded || microbatches == 1) return bytes + gradients_ * totals.window;
  return bytes + gradients_ * (stage_by_stage ? totals.largest_stage : totals.parameters + totals.tied_twice);
}

void DataPricer::add_memory(DataPrice& price, const PipelinePrice& pipeline, const SpannedData& data,
                            std::int64_t microbatches, std::int64_t rows) const {
  const DataChoice& choice = data.choice;
  const double per_parameter = state_bytes(data.dense);
  const double per_expert = state_bytes(data.experts) - per_parameter;  // more than of another
  const double doubled = choice.zero < 2 ? gradients_ : 0;
  const double converted = gradients_ == params_ ? 0 : params_ / data.dense.shards;  // for the update
  double most = 0;
  double state = 0;
  for (const PpTotals& totals : pipeline.pp_totals) {
    const double state_here =
        per_parameter * totals.parameters + per_expert * totals.experts + doubled * totals.tied_twice;
    const double all = state_here + std::max(totals.held, converted * totals.parameters) +
                       pool_bytes(totals, choice, microbatches, pipeline.stage_by_stage);
    if (all <= most) continue;
    most = all;
    state = state_here;
  }
  price.memory = with_reserve(most + row_bytes_ * static_cast<double>(rows));
  price.state = with_reserve(state);
}

double DataPricer::gradient_calls(const PpTotals& totals, const DataChoice& choice) const {
  if (choice.zero >= 2) return totals.units;
  const double unit = gradients_ * totals.parameters / std::max(totals.units, 1);
  const double joined = std::max(std::ceil(static_cast<double>(DataPolicy{}.bucket_bytes) / std::max(unit, 1.0)), 1.0);
  return std::ceil(totals.units / joined);
}

DataPricer::Traffic DataPricer::gathers(const PpTotals& totals, const DataChoice& choice, double microbatches,
                                        const ScheduleChoice& schedule, std::size_t pp_degree) const {
  const double all = totals.parameters;
  double elements = all;  // zero 1 and 2: once, after the update
  if (choice.zero >= 3 && totals.units > DataPolicy{}.limit_all_gathers) {
    // Stages of one unit each take turns by groups of microbatches, so that two of them stay full meanwhile.
    const bool in_turns = schedule.name == "interleaved" && totals.units <= schedule.virtual_stages;
    const double uses = in_turns ? std::ceil(microbatches / static_cast<double>(pp_degree)) : microbatches;
    elements = uses * (2 * all - totals.unused_in_backward);
    if (schedule.name == "gpipe") elements -= totals.last;
    // One stage: its last units stay full between forward and backward, its first ones until the next forward.
    if (schedule.virtual_stages == 1 && schedule.name != "gpipe") {
      elements -= microbatches * totals.last + (microbatches - 1) * totals.first;
    }
  }
  return {.calls = std::max(std::round(totals.units * elements / all), 1.0), .elements = elements};
}

double DataPricer::update_seconds(const PpTotals& totals, const SpannedData& data) const {
  const double updated =
      (totals.parameters - totals.experts) / data.dense.shards + totals.experts / data.experts.shards;
  return hardware_.updating_seconds(stack_.optimizer_moved * updated);
}

// What is left of traffic beside so many seconds of products, and what these lose by it.
double DataPricer::exposed_seconds(const Exchange& all, double beside_shards, double beside_copies,
                                   const SpannedData& data) const {
  if (!stack_.overlaps_gradients) return all.shards + all.copies;
  const HiddenTime shards = overlap(all.shards, beside_shards, link_of(data.dense.shard_ranks, hardware_));
  const HiddenTime copies = overlap(all.copies, std::min(beside_shards - shards.hidden, beside_copies),
                                    link_of(data.dense.copies, hardware_));
  return shards.exposed + copies.exposed;
}

// Of so many parameters; `gathered` elements by `gathers` calls.
DataPricer::Exchange DataPricer::exchange(double parameters, double gathered, double gathers, double reductions,
                                          double calls, const ParameterShares& shares) const {
  Exchange made;
  const double gradients = gradients_ * parameters;
  const double summed = gradients / shares.shards;
  if (shares.zero >= 1) {
    made.shards = calls_seconds(ExchangeKind::reduce_scatter, reductions * gradients, reductions * calls,
                                shares.shard_ranks, hardware_) +
                  calls_seconds(ExchangeKind::all_gather, compute_ * gathered, gathers, shares.shard_ranks, hardware_);
    made.bytes = compute_ * gathered + reductions * gradients;
  }
  made.copies = calls_seconds(ExchangeKind::all_reduce, summed, calls, shares.copies, hardware_);
  if (shares.copies.ranks > 1) made.bytes += summed;
  return made;
}

// Of one rank.
DataPricer::PpTail DataPricer::tail(const PpTotals& totals, const SpannedData& data, double microbatches,
                                    const ScheduleChoice& schedule, std::size_t pp_degree) const {
  const DataChoice& choice = data.choice;
  const double reductions = choice.accumulate_sharded ? microbatches : 1;
  const double calls = gradient_calls(totals, choice);
  Traffic gathered;
  if (choice.zero >= 1) gathered = gathers(totals, choice, microbatches, schedule, pp_degree);
  const double experts = totals.experts / totals.parameters;
  Exchange all = exchange(totals.parameters - totals.experts, (1 - experts) * gathered.elements, gathered.calls,
                          reductions, calls, data.dense);
  if (totals.experts > 0) {
    const Exchange apart =
        exchange(totals.experts, experts * gathered.elements, gathered.calls, reductions, calls, data.experts);
    all.shards += apart.shards;
    all.copies += apart.copies;
    all.bytes += apart.bytes;
  }
  const double tied = calls_seconds(ExchangeKind::all_reduce, gradients_ * totals.shared / data.dense.shards,
                                    totals.shared > 0 ? 1 : 0, tied_span(data.pp), hardware_);
  const double computing = microbatches * (totals.seconds - totals.exchanged);
  PpTail tail{.bytes = all.bytes};
  tail.seconds = exposed_seconds(all, choice.zero >= 3 ? computing : totals.backward, totals.backward, data) + tied +
                 reductions * totals.partial_seconds + update_seconds(totals, data);
  return tail;
}

void DataPricer::add_time(DataPrice& price, const PipelinePrice& pipeline, const SpannedData& data,
                          std::int64_t microbatches, const ScheduleChoice& schedule) const {
  const auto& pp_totals = pipeline.pp_totals;
  const auto note = [&](const PpTotals& totals) {
    const PpTail one = tail(totals, data, static_cast<double>(microbatches), schedule, pp_totals.size());
    price.seconds = std::max(price.seconds, one.seconds);
    price.bytes = std::max(price.bytes, one.bytes);
  };
  note(pp_totals.front());
  if (pp_totals.size() == 1) return;
  note(pp_totals.back());
  const PpTotals& largest = pp_totals[pipeline.largest];
  if (&largest != &pp_totals.front() && &largest != &pp_totals.back()) note(largest);
}

}  // namespace orthant
