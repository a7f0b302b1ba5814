#include "orthant/watch/run_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orthant/base/human.h"
#include "orthant/base/printable.h"
#include "orthant/report/curve.h"
#include "orthant/report/figures.h"
#include "orthant/report/marks.h"

namespace orthant::watch {
namespace {

// The first `columns` characters of UTF-8.
std::string cut(const std::string& line, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(line[i]) & 0xc0) != 0x80;
    if (begins && seen++ == columns) return line.substr(0, i);
  }
  return line;
}

bool is_trouble(const std::string& cause) {
  return cause != "running" && cause != "nothing wrong";
}

std::string step_line(const report::RunFolder& run) {
  std::string text;
  for (const auto& [name, value] : report::figure_texts(run)) {
    text += text.empty() ? fmt::format("step {}", value) : fmt::format(", {} {}", name, value);
  }
  return text + "\n";
}

}  // namespace

std::string screen_of(const RunWatch& watch, TerminalSize size) {
  const auto text = printable(report::report_text(watch.runs()), /*keep_lines=*/true);
  std::string screen = "\x1b[H";  // to the first line; the rest of each line and of the screen is cleared behind it
  std::size_t row = 1;
  for (std::size_t begin = 0; begin < text.size() && row < size.rows; ++row) {
    const auto end = std::min(text.find('\n', begin), text.size());
    screen += cut(text.substr(begin, end - begin), size.columns) + "\x1b[K\n";
    begin = end + 1;
  }
  return screen + "\x1b[J";
}

std::string RunLines::next(const RunWatch& watch) {
  std::string text;
  const auto& run = watch.run();
  const auto marks = report::marks_of(run);
  std::size_t told = 0;
  for (const auto& mark : marks) {
    if (mark.kind == "checkpoint" || ++told <= marks_) continue;
    text += fmt::format("{} at step {}\n", mark.kind, mark.step);
  }
  marks_ = told;
  if (!run.metrics.steps.empty() && run.metrics.steps.back() != step_) {
    step_ = run.metrics.steps.back();
    text += step_line(run);
  }
  const auto& finding = watch.runs().front().findings.front();
  if (finding.cause != cause_) {
    if (is_trouble(finding.cause) || is_trouble(cause_)) text += fmt::format("{}: {}\n", finding.cause, finding.answer);
    cause_ = finding.cause;
  }
  return printable(text, /*keep_lines=*/true);
}

std::string RunLines::last(const RunWatch& watch) {
  return printable("the run has ended\n" + report::to_text(watch.run(), watch.runs().front().findings),
                   /*keep_lines=*/true);
}

}  // namespace orthant::watch
