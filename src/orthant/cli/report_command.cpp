// orthant report: what runs came to, as a page or as text.
#include <fmt/format.h>

#include <iostream>

#include "orthant/base/error.h"
#include "orthant/cli/command.h"
#include "orthant/cli/option_parser.h"
#include "orthant/report/page.h"

namespace orthant::cli {

int run_report(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Says what a run came to: numbers, where a step's time went, what went wrong. Several runs are compared.",
      "orthant report");
  std::vector<std::string> paths;
  std::string html;
  app.add_option("runs", paths, "folders of runs").required();
  app.add_option("--html", html, "write a page that loads nothing to this file");
  if (!parse(app, arguments, context,
             "orthant report runs/demo-1 --html report.html\n  orthant report runs/a runs/b")) {
    return 0;
  }
  refuse_empty(app, {"--html"});
  std::vector<report::ReportedRun> runs;
  for (const auto& path : paths) {
    auto run = report::read_run_folder(path);
    auto findings = report::diagnose(run, report::observe(run));
    runs.push_back({std::move(run), std::move(findings)});
  }
  if (!html.empty()) {
    write_output("--html", html, report::report_html(runs));
    return 0;
  }
  std::cout << report::report_text(runs) << std::flush;
  return 0;
}

}  // namespace orthant::cli
