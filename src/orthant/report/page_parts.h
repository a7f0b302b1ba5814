// Parts of a report's page. Used by page.cpp alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orthant/report/page.h"
#include "orthant/trace/step_table.h"

namespace orthant::report {

// The style and the script, and what stands before and behind the sections. A live page also has the script that takes
// sections from the server.
std::string page_head(const std::string& title);
std::string page_foot(bool live);

// Where a step's time goes, from the profile or else the last events; nothing where there are neither.
struct StepParts {
  std::vector<std::string> names;  // of parts
  struct Rank {
    int rank = 0;
    double step_seconds = 0;
    std::vector<double> seconds;  // as names
  };
  std::vector<Rank> ranks;
  bool profiled = false;
};
std::optional<StepParts> step_parts(const RunFolder& run);

std::string parts_section(const StepParts& parts);
// The last whole step of the first replica's ranks as executed, and as the simulator would run it where a profile says.
std::string schedule_section(const RunFolder& run);
std::string settings_section(const std::vector<ReportedRun>& runs);
// What the planner predicted for the run beside what was measured; empty where the run did not come to its end.
std::string prediction_section(const RunFolder& run);
std::string facts_section(const RunFolder& run);

// Names and values of a configuration: "train.steps" -> "100".
std::vector<std::pair<std::string, std::string>> flat_settings(const nlohmann::ordered_json& config);

}  // namespace orthant::report
