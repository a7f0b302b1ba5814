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

// How ranks share parameters: into how many shards, and where the ranks of a shard's and of a copy's group lie.
struct ParameterShares {
  int zero = 0;  // effective
  int shards = 1;
  Span copies = {};       // over which gradients are summed last: copy_axes()
  Span shard_ranks = {};  // over which they are scattered
};

// A choice with the places of its groups.
struct SpannedData {
  DataChoice choice;
  ParameterShares dense = {};
  ParameterShares experts = {};  // of those on a mesh of their own
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
  void add_memory(DataPrice& price, const PipelinePrice& pipeline, const SpannedData& data, std::int64_t microbatches,
                  std::int64_t rows) const;

  // Seconds after the pipeline: the longest of the first pp coordinate, the last, and the one with most parameters. No
  // other takes longer.
  void add_time(DataPrice& price, const PipelinePrice& pipeline, const SpannedData& data, std::int64_t microbatches,
                const ScheduleChoice& schedule) const;

  // A bound from below on a card's memory: the state of `parameters` in as many shards as there can be.
  double least_state(double parameters, int shards) const;
  // The same of a priced pipeline, with its activations.
  double least_memory(const PipelinePrice& pipeline, int shards) const;

 private:
  struct Traffic {
    double calls = 0;
    double elements = 0;
  };

  struct PpTail {
    double seconds = 0;
    double bytes = 0;
  };

  double state_bytes(const ParameterShares& shares) const;  // per parameter
  double pool_bytes(const PpTotals& totals, const DataChoice& choice, std::int64_t microbatches,
                    bool stage_by_stage) const;
  double gradient_calls(const PpTotals& totals, const DataChoice& choice) const;
  Traffic gathers(const PpTotals& totals, const DataChoice& choice, double microbatches, const ScheduleChoice& schedule,
                  std::size_t pp_degree) const;
  PpTail tail(const PpTotals& totals, const SpannedData& data, double microbatches, const ScheduleChoice& schedule,
              std::size_t pp_degree) const;
  double update_seconds(const PpTotals& totals, const SpannedData& data) const;
  // Gradients that are scattered and summed, and parameters that are gathered.
  struct Exchange {
    double shards = 0;  // seconds
    double copies = 0;
    double bytes = 0;
  };
  Exchange exchange(double parameters, double gathered, double gathers, double reductions, double calls,
                    const ParameterShares& shares) const;
  double exposed_seconds(const Exchange& all, double beside_shards, double beside_copies,
                         const SpannedData& data) const;
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
