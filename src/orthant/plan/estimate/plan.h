// A priced plan: whether it fits, how fast it runs, what travels. The JSON that users meet is written from this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/plan_model.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/plan/stacks/stack.h"
#include "orthant/schedule/simulate.h"
#include "orthant/schedule/stage_edges.h"

namespace orthant {

// Of one pp coordinate, all its stages together; the worst of its ranks.
struct PpMemory {
  std::int64_t parameters = 0;  // as products read them, and what they are gathered from
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;    // moments, and the master copy where products read another dtype
  std::int64_t activations = 0;  // of all microbatches in flight, without logits
  std::int64_t logits = 0;       // and what head and embedding keep
  std::int64_t temporary = 0;    // gathered units, full gradients, workspace of the running unit
  std::int64_t reserve = 0;

  std::int64_t total() const { return parameters + gradients + optimizer + activations + logits + temporary + reserve; }
};

// Per rank and step: payload as the counters of `comm` count it, and how long it takes when nothing else runs. For tp
// and cp this includes waiting for ranks that the machine interrupts.
struct AxisTraffic {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
  double exposed_seconds = 0;  // not hidden behind compute
};

struct PpTraffic {
  AxisTraffic tp;    // activations, their gradients, statistics, partial gradients
  AxisTraffic pp;    // messages sent: values and their gradients
  AxisTraffic dp;    // sums of gradients over replicas, and those that are over cp in the same call
  AxisTraffic fsdp;  // gathers and scatters
  AxisTraffic tied;  // sums of gradients of tied parameters over pp
  AxisTraffic cp;    // what attention exchanges; sums of gradients over cp alone
  AxisTraffic ep;    // tokens on their way to experts and back
};

struct PlanTime {
  double step = 0;
  double compute = 0;  // of the busiest pp coordinate, without its communication
  double bubble = 0;
  double exposed_communication = 0;
  double optimizer = 0;
};

struct Plan {
  PlanSettings settings;
  int virtual_stages = 1;
  bool fits = false;
  std::string why_not;                           // where it does not fit
  std::vector<PpMemory> memory;                  // per pp coordinate
  std::vector<PpTraffic> traffic;                // per pp coordinate
  std::vector<std::vector<std::string>> stages;  // per stage: names of its units
  std::vector<int> stage_pp_coordinates;         // per stage: its pp coordinate
  StageCosts costs;                              // per stage, in seconds
  StageTable table;                              // of a step
  StageEdges edges;
  PlanTime time;
  double tokens_per_second_per_gpu = 0;
  double model_tflops_per_gpu = 0;
  double mfu = 0;

  int worst_stage() const;          // the pp coordinate with most memory
  std::int64_t peak_bytes() const;  // its bytes
};

// Prices one way. The table is simulated. ConfigError for settings that cannot be: sizes, divisibility, a schedule that
// does not exist, a stack that does not cover the model.
// `programs`: where compiled ones are found and left.
Plan estimate(const PlanModel& model, const PlanSettings& settings, const Hardware& hardware, const Stack& stack,
              ProgramCache* programs = nullptr);

// The table of the plan's pipeline with its times, for pictures.
Simulation simulate_plan(const Plan& plan);

// For so many tokens: days, and dollars where the hardware has a price.
struct Budget {
  double days = 0;
  double dollars = 0;
};
Budget budget_of(const Plan& plan, const Hardware& hardware, double tokens);

std::string to_json(const Plan& plan, int indent = -1);
std::string plan_text(const Plan& plan, const PlanModel& model, const Hardware& hardware);

}  // namespace orthant
