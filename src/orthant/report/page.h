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

// The page's sections apart, for a page that is kept up to date: replacing the text of each by that of another moment
// gives the page of that moment. Sections without data are empty.
struct PagePiece {
  std::string id;
  std::string html;
  bool operator==(const PagePiece&) const = default;
};
std::vector<PagePiece> page_pieces(const std::vector<ReportedRun>& runs);
std::string page_title(const std::vector<ReportedRun>& runs);
// The page of these pieces. `live`: a word at the top of it says how its connection to "events" is, whose events
// replace pieces; empty for a page that stays as it is, else where in these events it stands.
std::string page_of_pieces(const std::string& title, const std::vector<PagePiece>& pieces,
                           const std::string& live = "");

// The same in short, for a terminal.
std::string report_text(const std::vector<ReportedRun>& runs);

// Settings that are not alike: name, and each run's value ("" where it has none).
struct Difference {
  std::string name;
  std::vector<std::string> values;
};
std::vector<Difference> differences(const std::vector<ReportedRun>& runs);

}  // namespace orthant::report
