#include "orthant/schedule/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "orthant/schedule/grid.h"

namespace orthant {
namespace {

constexpr double kMaxColumns = 2000;

// Everything within this of a multiple of the step counts as one.
double tolerance(const Simulation& simulation) {
  return 1e-6 * simulation.makespan;
}

// The largest step whose multiples hold every start and end; nothing when the columns would be too many.
std::optional<double> common_step(const Simulation& simulation) {
  const double small = tolerance(simulation);
  double step = 0;
  for (const auto& actions : simulation.actions) {
    for (const TimedAction& timed : actions) {
      for (double rest : {timed.start, timed.end}) {
        while (rest > small) {  // Euclid's algorithm
          std::swap(step, rest);
          rest = std::fmod(rest, step);
          if (step - rest < small) rest = 0;
        }
        if (step > 0 && step * kMaxColumns < simulation.makespan) return std::nullopt;
      }
    }
  }
  return step > 0 ? std::optional<double>(step) : std::nullopt;
}

std::vector<double> column_times(const Simulation& simulation) {
  std::vector<double> times;
  if (const auto step = common_step(simulation)) {
    const auto count = static_cast<int>(std::lround(simulation.makespan / *step));
    for (int i = 0; i < count; ++i) times.push_back(i * *step);
    return times;
  }
  for (const auto& actions : simulation.actions) {
    for (const TimedAction& timed : actions) times.push_back(timed.start);
  }
  std::ranges::sort(times);
  const double small = tolerance(simulation);
  const auto repeated = std::ranges::unique(times, [&](double left, double right) { return right - left <= small; });
  times.erase(repeated.begin(), repeated.end());
  return times;
}

}  // namespace

std::string timeline_text(const Simulation& simulation) {
  const std::vector<double> times = column_times(simulation);
  const double small = tolerance(simulation);
  std::vector<std::string> heads;
  for (const double time : times) heads.push_back(fmt::format("{:.4g}", time));
  const auto column_at = [&](double time) {
    return static_cast<std::size_t>(std::ranges::lower_bound(times, time - small) - times.begin());
  };
  GridRows rows;
  for (const auto& actions : simulation.actions) {
    auto& row = rows.emplace_back(times.size(), ".");
    for (const TimedAction& timed : actions) {
      const std::size_t begin = std::min(column_at(timed.start), times.empty() ? 0 : times.size() - 1);
      for (std::size_t c = begin + 1; c < std::min(column_at(timed.end), times.size()); ++c) row[c] = "-";
      if (begin >= row.size()) continue;
      // What takes no time shares a cell with what follows.
      row[begin] = row[begin] == "." ? to_string(timed.action) : row[begin] + "," + to_string(timed.action);
    }
  }
  return draw_grid("time", heads, rows);
}

}  // namespace orthant
