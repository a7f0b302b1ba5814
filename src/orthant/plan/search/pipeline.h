// A pipeline priced by closed forms: all of a configuration that does not depend on how replicas share the state.
//
// Note [Closed forms of the search]: with F, B, W the seconds of a stage for one microbatch (what it exchanges over tp
// included), R those of all v stages of a pp coordinate, c the seconds of a message, p the degree of pp, M
// microbatches, sums and maxima over stages:
//   gpipe         sum (F + B + W + 2c) + (M - 1) max (F + B + W)
//   1f1b          the same, where the period is at least, for a stage with fewer than M in flight, the time from its
//                 forward to its backward of a microbatch over those it has in flight
//   interleaved   M up to p: as gpipe. Beyond, with k what the last group of p lacks:
//                 (M + k) max R + (p - 1) max R / v - k (max R / v + (v - 1) max F) + 2c (p v - 1)
//   zbh1          M max R + sum (max (F + B - W, 0) + 2c) but for the largest, or the first microbatch's way until the
//                 last W, sum (F + c) + max (sum of B + c from a stage on + its W), + (M - 1) (max F + max B)
//   zbv           M max R + (p - 1) (max (F, B) + c), or sum (F + B + 2c) + 2 max W + (M - 1) max (2F + B + W)
// the longer of two. They order configurations; the best are simulated. Memory is that of moments which the schedule's
// table reaches, so it is hardly ever above what the list that runs needs.
#pragma once

#include <vector>

#include "orthant/plan/search/space.h"
#include "orthant/plan/search/stages.h"
#include "orthant/plan/search/tables.h"

namespace orthant {

// What one rank of a pp coordinate has of a pipeline. Numbers of parameters, where nothing else is said.
struct PpTotals {
  double parameters = 0;
  double experts = 0;             // of these, the ones that lie on a mesh of their own
  double tied_twice = 0;          // tied, used by two units here: each use has a gradient of its own
  double shared = 0;              // tied, also held at another pp coordinate
  double unused_in_backward = 0;  // whose values no backward pass reads
  double first = 0;               // of the first two units: they may stay gathered
  double last = 0;                // of the last two units, likewise
  double largest_stage = 0;       // of the stage with the most
  double window = 0;              // that are full at one time where units are gathered one after another
  int units = 0;                  // that have parameters
  double seconds = 0;             // of one microbatch: F + B + W
  double exchanged = 0;           // the part of `seconds` spent waiting for tp, cp and ep
  double backward = 0;            // the part of `seconds` in B and W
  double partial_seconds = 0;     // of summing partial gradients over tp, once a step
  double held = 0;                // bytes of activations, of what runs and of messages, at the worst moment of a step
};

struct PipelinePrice {
  std::vector<PpTotals> pp_totals;
  // A pp coordinate is done with all microbatches of a stage before it begins with another.
  bool stage_by_stage = false;
  std::size_t largest = 0;        // the pp coordinate with most parameters
  double step_seconds = 0;        // without data parallelism and the update
  double microbatch_seconds = 0;  // of one microbatch through all stages, forward and back
  double bytes = 0;               // sent over tp, cp, ep and pp by the pp coordinate that sends most
};

struct PipelineShape {
  ScheduleChoice schedule = {};
  std::int64_t microbatches = 1;
  const std::vector<int>& begins;          // the cut
  const std::vector<int>& pp_coordinates;  // per stage: its pp coordinate
  const std::vector<HeldMoments>& moments;
  Span tp = {};  // of the groups
  Span pp = {};
};
PipelinePrice price_pipeline(const PipelineShape& shape, const UnitPrices& units, const SearchModel& model,
                             const Hardware& hardware);

}  // namespace orthant
