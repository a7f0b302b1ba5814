#include "orthant/plan/search/pipeline.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "orthant/base/index.h"
#include "orthant/plan/estimate/estimate_parts.h"

namespace orthant {
namespace {

// Stages with the message they send.
struct TimedStage {
  StageTotals totals;
  double send = 0;  // seconds
};

std::vector<TimedStage> timed_stages(const PipelineShape& shape, const UnitPrices& units, const Hardware& hardware) {
  std::vector<TimedStage> timed;
  for (std::size_t s = 0; s + 1 < shape.begins.size(); ++s) {
    TimedStage& stage = timed.emplace_back(TimedStage{units.stage(shape.begins[s], shape.begins[s + 1])});
    const bool leaves = s + 2 < shape.begins.size() && shape.pp_coordinates[s] != shape.pp_coordinates[s + 1];
    if (leaves) stage.send = message_seconds(stage.totals.output, shape.pp, hardware);
  }
  return timed;
}

// What the closed forms are made of.
struct StageSums {
  double all = 0;        // sum of F + B + W + 2c
  double without_w = 0;  // sum of F + B + 2c
  double work = 0;       // from here on maxima: of F + B + W
  double forward = 0;
  double inputs = 0;
  double weights = 0;
  double send = 0;
  double busiest = 0;  // of pp coordinates
};

StageSums sums_of(const std::vector<TimedStage>& stages, const std::vector<PpTotals>& pp_totals) {
  StageSums sums;
  for (const auto& [totals, send] : stages) {
    const UnitTotals& sum = totals.sum;
    sums.all += sum.seconds() + 2 * send;
    sums.without_w += sum.forward + sum.inputs + 2 * send;
    sums.work = std::max(sums.work, sum.seconds());
    sums.forward = std::max(sums.forward, sum.forward);
    sums.inputs = std::max(sums.inputs, sum.inputs);
    sums.weights = std::max(sums.weights, sum.weights);
    sums.send = std::max(sums.send, send);
  }
  for (const PpTotals& here : pp_totals) sums.busiest = std::max(sums.busiest, here.seconds);
  return sums;
}

// Seconds between two microbatches under 1f1b.
double period(const std::vector<TimedStage>& stages, double microbatches) {
  double behind = 0;  // of a microbatch, from a stage's forward to the end of its backward
  double longest = 0;
  for (std::size_t i = stages.size(); i-- > 0;) {
    const double work = stages[i].totals.sum.seconds();
    behind += work + 2 * stages[i].send;
    const auto in_flight = static_cast<double>(stages.size() - i);
    longest = std::max({longest, work, microbatches > in_flight ? behind / in_flight : 0});
  }
  return longest;
}

// What the other stages add to the busiest of zbh1: F + B - W each, and the messages.
double zbh1_bubble(const std::vector<TimedStage>& stages) {
  double all = 0;
  double most = 0;
  for (const auto& [totals, send] : stages) {
    const double waits = std::max(totals.sum.forward + totals.sum.inputs - totals.sum.weights, 0.0) + 2 * send;
    all += waits;
    most = std::max(most, waits);
  }
  return all - most;
}

// Of one microbatch under zbh1: through all stages and back, until the last of them has made the gradients of weights.
double first_way(const std::vector<TimedStage>& stages) {
  double there = 0;
  for (const auto& [totals, send] : stages) there += totals.sum.forward + send;
  double back = 0;
  double longest = 0;
  for (std::size_t i = stages.size(); i-- > 0;) {
    back += stages[i].totals.sum.inputs + stages[i].send;
    longest = std::max(longest, back + stages[i].totals.sum.weights);
  }
  return there + longest;
}

// See Note [Closed forms of the search].
double step_seconds(const PipelineShape& shape, const std::vector<TimedStage>& stages,
                    const std::vector<PpTotals>& pp_totals) {
  const StageSums sums = sums_of(stages, pp_totals);
  const std::string_view name = shape.schedule.name;
  const auto m = static_cast<double>(shape.microbatches);
  const auto p = static_cast<double>(pp_totals.size());
  if (name == "1f1b") return sums.all + (m - 1) * period(stages, m);
  if (name == "gpipe" || (name == "interleaved" && m <= p)) return sums.all + (m - 1) * sums.work;
  if (name == "interleaved") {
    const double v = shape.schedule.virtual_stages;
    const double lacking = std::ceil(m / p) * p - m;
    return (m + lacking) * sums.busiest + (p - 1) * sums.busiest / v -
           lacking * (sums.busiest / v + (v - 1) * sums.forward) + 2 * sums.send * (p * v - 1);
  }
  if (name == "zbh1") {
    return std::max(m * sums.busiest + zbh1_bubble(stages), first_way(stages) + (m - 1) * (sums.forward + sums.inputs));
  }
  return std::max(m * sums.busiest + (p - 1) * (std::max(sums.forward, sums.inputs) + sums.send),
                  sums.without_w + 2 * sums.weights + (m - 1) * (2 * sums.forward + sums.inputs + sums.weights));
}

double held_bytes(const HeldMoments& moments, const std::vector<const StageTotals*>& stages) {
  double most = 0;
  for (const HeldMoment& moment : moments) {
    double bytes = stages[to_index(moment.next)]->running[static_cast<std::size_t>(moment.kind)];
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const auto [whole, deferred] = moment.stages[i];
      bytes += whole * stages[i]->sum.kept + deferred * stages[i]->sum.deferred;
    }
    most = std::max(most, bytes);
  }
  return most;
}

// Buffers of messages that a pp coordinate waits for: a few on every channel, as long as some are to come. With gpipe
// and zbv the worst moment may be behind the last of them.
void add_messages(std::vector<PpTotals>& pp_totals, const PipelineShape& shape, const std::vector<TimedStage>& stages) {
  constexpr double kPosted = 2;  // as in step_memory.cpp
  if (shape.schedule.name == "gpipe" || shape.schedule.name == "zbv") return;
  if (shape.microbatches <= std::ssize(pp_totals)) return;
  std::set<std::pair<int, int>> channels;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    const int from = shape.pp_coordinates[s];
    const int to = shape.pp_coordinates[s + 1];
    if (from == to || !channels.emplace(from, to).second) continue;
    pp_totals[to_index(to)].held += kPosted * stages[s].totals.output;    // values
    pp_totals[to_index(from)].held += kPosted * stages[s].totals.output;  // and their gradients
  }
}

// A tied parameter that its owner and a borrower use on one pp coordinate is there once.
void join_tied(std::vector<PpTotals>& pp_totals, const PipelineShape& shape, const UnitPrices& units,
               const SearchModel& model) {
  const auto pp_coordinate_of = [&](int unit) {
    const auto after = std::ranges::upper_bound(shape.begins, unit);
    return shape.pp_coordinates[static_cast<std::size_t>(after - shape.begins.begin() - 1)];
  };
  for (const auto& [unit, lender] : model.lenders()) {
    const double elements = units.borrowed(unit);
    PpTotals& here = pp_totals[to_index(pp_coordinate_of(unit))];
    PpTotals& other = pp_totals[to_index(pp_coordinate_of(lender))];
    if (&here == &other) {
      here.parameters -= elements;
      here.tied_twice += elements;
    } else {
      here.shared += elements;
      other.shared += elements;
    }
  }
}

void add_stage(PpTotals& here, const StageTotals& totals) {
  if (here.units == 0) here.first = totals.first;
  here.last = totals.last;
  here.parameters += totals.sum.parameters;
  here.experts += totals.sum.experts;
  here.largest_stage = std::max(here.largest_stage, totals.sum.parameters);
  here.unused_in_backward += totals.unused_in_backward;
  here.units += totals.units;
  here.seconds += totals.sum.seconds();
  here.exchanged += totals.sum.exchanged;
  here.backward += totals.sum.inputs + totals.sum.weights;
}

}  // namespace

PipelinePrice price_pipeline(const PipelineShape& shape, const UnitPrices& units, const SearchModel& model,
                             const Hardware& hardware) {
  const std::vector<TimedStage> timed = timed_stages(shape, units, hardware);
  PipelinePrice price;
  price.pp_totals.resize(shape.moments.size());
  std::vector<double> bytes(price.pp_totals.size(), 0);  // of a microbatch
  std::vector<std::vector<const StageTotals*>> stages_at(price.pp_totals.size());
  for (std::size_t s = 0; s < timed.size(); ++s) {
    const auto& [totals, send] = timed[s];
    const std::size_t r = to_index(shape.pp_coordinates[s]);
    add_stage(price.pp_totals[r], totals);
    price.pp_totals[r].partial_seconds +=
        calls_seconds(ExchangeKind::all_reduce, totals.sum.partials, totals.sum.partial_calls, shape.tp, hardware);
    stages_at[r].push_back(&totals);
    price.microbatch_seconds += totals.sum.seconds() + 2 * send;
    bytes[r] += totals.sum.exchanged_bytes + (send > 0 ? 2 * totals.output : 0);
  }
  // Microbatches go through a looped pipeline by groups, and here there is one.
  price.stage_by_stage = shape.schedule.virtual_stages > 1 && shape.microbatches <= std::ssize(price.pp_totals);
  price.bytes = std::ranges::max(bytes) * static_cast<double>(shape.microbatches);
  price.step_seconds = step_seconds(shape, timed, price.pp_totals);
  for (std::size_t r = 0; r < price.pp_totals.size(); ++r) {
    SizeCounts sizes = {};
    for (const StageTotals* stage : stages_at[r]) {
      std::ranges::transform(sizes, stage->sizes, sizes.begin(), std::plus());
    }
    price.pp_totals[r].window = units.window(sizes);
    price.pp_totals[r].held = held_bytes(shape.moments[r], stages_at[r]);
  }
  add_messages(price.pp_totals, shape, timed);
  join_tied(price.pp_totals, shape, units, model);
  const auto largest = std::ranges::max_element(price.pp_totals, {}, &PpTotals::parameters);
  price.largest = static_cast<std::size_t>(largest - price.pp_totals.begin());
  return price;
}

}  // namespace orthant
