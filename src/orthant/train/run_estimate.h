// The planner's figures of a run, and how they compare with what was measured: memory and busy time per pp coordinate,
// the time of a step. Local.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "orthant/plan/estimate/plan.h"
#include "orthant/train/result_table.h"
#include "orthant/train/run_config.h"

namespace orthant {

// The run's settings in the planner's words: its microbatch, batch, lengths and dtypes.
PlanSettings run_plan_settings(const RunConfig& config);

// What the run would take there, from the spec, stages and lists that it trains with. ConfigError for what cannot run.
Plan estimate_run(const RunConfig& config, const Hardware& hardware);

// What a run took, beside what the planner says; nothing of times without hardware.
class RunComparison {
 public:
  // The result is that of a run which made steps.
  RunComparison(const RunConfig& config, const RunResult& result, const std::optional<Hardware>& hardware);

  // A few rows for people.
  std::vector<ResultRow> rows() const;

  // {"predicted": {"memory_bytes": [per pp], "busy_seconds": [...], "step_seconds": ...}, "measured": {the same,
  // "traffic": {group: {operation: {"calls", "payload_bytes"}}}}}.
  nlohmann::ordered_json json() const;

 private:
  struct Figures {
    std::vector<std::int64_t> memory_bytes;  // per pp coordinate, the most of its ranks
    std::vector<double> busy_seconds;        // per pp coordinate; none: not known
    double step_seconds = 0;                 // 0: not known
  };
  static nlohmann::ordered_json json_of(const Figures& figures);

  Figures predicted_;
  Figures measured_;
  std::map<std::string, comm::Counters> traffic_;  // measured: of all ranks up to the last step
  std::string hardware_;                           // its name; empty: not known
};

}  // namespace orthant
