// Plans as a page for browsers: one file with its data, style and script, which loads nothing. The page is data/report;
// what it shows is a JSON document that is written here. Sections without data stay away.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orthant/plan/search/scaling.h"
#include "orthant/plan/search/search.h"

namespace orthant {

// What a page says besides a search's result.
struct ReportExtras {
  double tokens = 0;  // to train on, for days and cost of the best plan; 0: not said
  std::optional<ScalingCurve> scaling = {};
  std::vector<std::string> warnings = {};
  std::string command = {};  // the line that made it
  RunLine run = {};          // of one plan; a search's result has its own
};

std::string plan_html(const SearchResult& result, const SearchRequest& request, const ReportExtras& extras);

// Of one plan: memory, schedule, time and traffic.
std::string plan_html(const Plan& plan, const PlanModel& model, const Hardware& hardware, const ReportExtras& extras);

}  // namespace orthant
