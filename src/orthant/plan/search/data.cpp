#include "orthant/plan/search/data.h"

#include <algorithm>
#include <cmath>

#include "orthant/plan/estimate/estimate_parts.h"

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

void DataPricer::add_memory(DataPrice& price, const PipelinePrice& pipeline, const DataChoice& choice,
                            std::int64_t microbatches, std::int64_t rows) const {
  const double per_parameter = state_bytes(choice);
  const double doubled = choice.zero < 2 ? gradients_ : 0;
  const double converted = gradients_ == params_ ? 0 : params_ / shards_of(choice);  // for the update
  double most = 0;
  double state = 0;
  for (const PpTotals& totals : pipeline.pp_totals) {
    const double state_here = per_parameter * totals.parameters + doubled * totals.tied_twice;
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
  return {.calls = std::max(std::round(totals.units * elements / all), 1.0), .bytes = compute_ * elements};
}

double DataPricer::update_seconds(const PpTotals& totals, const DataChoice& choice) const {
  return hardware_.updating_seconds(stack_.optimizer_moved * totals.parameters / shards_of(choice));
}

// What is left of traffic beside so many seconds of products, and what these lose by it.
double DataPricer::exposed_seconds(double fsdp, double dp, double beside_fsdp, double beside_dp,
                                   const SpannedData& data) const {
  if (!stack_.overlaps_gradients) return fsdp + dp;
  const HiddenTime shards = overlap(fsdp, beside_fsdp, link_of(data.fsdp, hardware_));
  const HiddenTime replicas =
      overlap(dp, std::min(beside_fsdp - shards.hidden, beside_dp), link_of(data.dp, hardware_));
  return shards.exposed + replicas.exposed;
}

// Of one rank.
DataPricer::PpTail DataPricer::tail(const PpTotals& totals, const SpannedData& data, double microbatches,
                                    const ScheduleChoice& schedule, std::size_t pp_degree) const {
  const DataChoice& choice = data.choice;
  const double reductions = choice.accumulate_sharded ? microbatches : 1;
  const double calls = gradient_calls(totals, choice);
  const double gradients = gradients_ * totals.parameters;
  const double summed = gradients / shards_of(choice);
  PpTail tail;
  double fsdp = 0;
  if (choice.zero >= 1) {
    const Traffic gathered = gathers(totals, choice, microbatches, schedule, pp_degree);
    fsdp =
        calls_seconds(ExchangeKind::reduce_scatter, reductions * gradients, reductions * calls, data.fsdp, hardware_) +
        calls_seconds(ExchangeKind::all_gather, gathered.bytes, gathered.calls, data.fsdp, hardware_);
    tail.bytes = gathered.bytes + reductions * gradients;
  }
  const double dp = calls_seconds(ExchangeKind::all_reduce, summed, calls, data.dp, hardware_);
  if (data.dp.ranks > 1) tail.bytes += summed;
  const double tied = calls_seconds(ExchangeKind::all_reduce, gradients_ * totals.shared / shards_of(choice),
                                    totals.shared > 0 ? 1 : 0, tied_span(data.pp), hardware_);
  const double computing = microbatches * (totals.seconds - totals.exchanged);
  tail.seconds = exposed_seconds(fsdp, dp, choice.zero >= 3 ? computing : totals.backward, totals.backward, data) +
                 tied + reductions * totals.partial_seconds + update_seconds(totals, choice);
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
