// A run, or several side by side, as one page for browsers: a file that loads nothing. What the page shows is drawn
// here; its script only moves a cursor over curves. Sections without data stay away.
#pragma once

#include <string>
#include <vector>

#include "orthant/report/diagnosis.h"

namespace orthant::report {

struct ReportedRun {
  RunFolder run;
  std::vector<Finding> findings;
};

std::string report_html(const std::vector<ReportedRun>& runs);

// The same in short, for a terminal.
std::string report_text(const std::vector<ReportedRun>& runs);

// Settings that are not alike: name, and each run's value ("" where it has none).
struct Difference {
  std::string name;
  std::vector<std::string> values;
};
std::vector<Difference> differences(const std::vector<ReportedRun>& runs);

}  // namespace orthant::report
