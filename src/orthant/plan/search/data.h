// What data parallelism adds to a priced pipeline: the state that ranks hold, what travels between replicas, the
// update. By Note [Data state] (data_state.h) and Note [Data traffic] (data_traffic.h), with what a pipeline changes of
// it.
#pragma once

#include <cstdint>

#include "orthant/plan/estimate/collective_time.h"
#include "orthant/plan/search/pipeline.h"
#include "orthant/plan/search/space.h"
#include "orthant/plan/stacks/stack.h"

namespace orthant {

// A choice with the places of its groups.
struct SpannedData {
  DataChoice choice;
  Span dp = {};
  Span fsdp = {};
  Span pp = {};
};

struct DataPrice {
  double memory = 0;   // bytes of the worst rank, reserve included
  double state = 0;    // the part of `memory` for parameters, gradients, optimizer and reserve
  double seconds = 0;  // behind the pipeline: what nothing hides, and the update
  double bytes = 0;    // sent over dp and fsdp
};

class DataPricer {
 public:
  // Of `settings` dtypes and copies count; `row_bytes` is what a batch has per row.
  DataPricer(const PlanSettings& settings, double row_bytes, const Hardware& hardware, const Stack& stack);

  // Bytes of the rank that needs most, and of its state. `rows` of the batch are a replica's.
  void add_memory(DataPrice& price, const PipelinePrice& pipeline, const DataChoice& choice, std::int64_t microbatches,
                  std::int64_t rows) const;

  // Seconds after the pipeline: the longest of the first pp coordinate, the last, and the one with most parameters. No
  // other takes longer.
  void add_time(DataPrice& price, const PipelinePrice& pipeline, const SpannedData& data, std::int64_t microbatches,
                const ScheduleChoice& schedule) const;

  // A bound from below on a card's memory: the state of `parameters` shared as far as can be.
  double least_state(double parameters, int replicas) const;
  // The same of a priced pipeline, with its activations.
  double least_memory(const PipelinePrice& pipeline, int replicas) const;

 private:
  struct Traffic {
    double calls = 0;
    double bytes = 0;
  };

  struct PpTail {
    double seconds = 0;
    double bytes = 0;
  };

  double state_bytes(const DataChoice& choice) const;  // per parameter
  double pool_bytes(const PpTotals& totals, const DataChoice& choice, std::int64_t microbatches,
                    bool stage_by_stage) const;
  double gradient_calls(const PpTotals& totals, const DataChoice& choice) const;
  Traffic gathers(const PpTotals& totals, const DataChoice& choice, double microbatches, const ScheduleChoice& schedule,
                  std::size_t pp_degree) const;
  PpTail tail(const PpTotals& totals, const SpannedData& data, double microbatches, const ScheduleChoice& schedule,
              std::size_t pp_degree) const;
  double update_seconds(const PpTotals& totals, const DataChoice& choice) const;
  double exposed_seconds(double fsdp, double dp, double beside_fsdp, double beside_dp, const SpannedData& data) const;
  double with_reserve(double bytes) const;

  double params_;  // bytes of an element, as of the next two
  double compute_;
  double gradients_;
  double copies_;
  double row_bytes_;
  const Hardware& hardware_;
  const Stack& stack_;
};

}  // namespace orthant
