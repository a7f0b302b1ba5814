// What became of a run and why, in plain sentences: the most likely cause first, with what shows it and what to change.
// See Note [Confidence].
//
// Note [Confidence]: 0.9 and above is proved by what somebody said or by the state of a process; between 0.6 and 0.9
// the run's own times show it; below that it may be so. A cause that is not shown is not named.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/report/run_folder.h"

namespace orthant::report {

struct Finding {
  std::string cause;  // a word for programs: "killed", "hang", "slow data", ...
  double confidence = 0;
  std::string answer;  // a sentence or two
  std::vector<std::string> evidence;
  std::string fix;  // what to change; empty: nothing
};

// What the system says of a rank's process now.
enum class ProcessState { unknown, gone, running, stopped };  // unknown: it was on another host
ProcessState process_state(const trace::RankRecord& rank);

struct Observed {
  std::vector<ProcessState> processes;  // as RunFolder::ranks
  std::int64_t now_ns = 0;              // of the monotonic clock of this host
};
Observed observe(const RunFolder& run);

// Whether nothing of the run goes on. Nobody knows of processes on other hosts, where the ranks themselves say that
// they ended; and between attempts of a run that is started again nothing goes on for a while.
enum class RunState { runs, pauses, ended };
RunState state_of(const RunFolder& run, const Observed& observed);

// The most likely first; at least one. Local.
std::vector<Finding> diagnose(const RunFolder& run, const Observed& observed);

std::string to_text(const RunFolder& run, const std::vector<Finding>& findings);
nlohmann::ordered_json to_json(const RunFolder& run, const std::vector<Finding>& findings);

}  // namespace orthant::report
