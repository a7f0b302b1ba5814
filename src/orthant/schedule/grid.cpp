#include "orthant/schedule/grid.h"

#include <fmt/format.h>

#include <algorithm>

namespace orthant {
namespace {

// The actions of one time step: per pp coordinate the one that starts, or none.
std::vector<const StageAction*> starting(const StageTable& table, const StageProgress& progress,
                                         const std::vector<std::size_t>& next) {
  std::vector<const StageAction*> started(next.size(), nullptr);
  const StageAction* first_waiting = nullptr;
  std::size_t waiting = 0;
  bool any = false;
  for (std::size_t pp_coordinate = 0; pp_coordinate < next.size(); ++pp_coordinate) {
    if (next[pp_coordinate] == table.actions[pp_coordinate].size()) continue;
    const StageAction* action = &table.actions[pp_coordinate][next[pp_coordinate]];
    if (progress.ready(*action)) {
      started[pp_coordinate] = action;
      any = true;
    } else if (first_waiting == nullptr) {
      first_waiting = action;
      waiting = pp_coordinate;
    }
  }
  if (!any && first_waiting != nullptr) started[waiting] = first_waiting;
  return started;
}

std::vector<std::string> numbers(std::size_t first, const GridRows& rows) {
  std::size_t count = 0;
  for (const auto& row : rows) count = std::max(count, row.size());
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(std::to_string(first + i));
  return numbers;
}

}  // namespace

std::string draw_grid(std::string_view corner, const std::vector<std::string>& columns, const GridRows& rows) {
  std::size_t width = 1;
  for (const std::string& head : columns) width = std::max(width, head.size());
  for (const auto& row : rows) {
    for (const std::string& cell : row) width = std::max(width, cell.size());
  }
  const std::size_t label_width = std::max(corner.size(), fmt::formatted_size("pp {}", rows.size()));
  const auto line = [&](std::string_view label, const std::vector<std::string>& cells) {
    std::string text = fmt::format("{:<{}} |", label, label_width);
    for (const std::string& cell : cells) text += fmt::format(" {:<{}}", cell, width);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string text = line(corner, columns);
  for (std::size_t r = 0; r < rows.size(); ++r) text += line(fmt::format("pp {}", r), rows[r]);
  return text;
}

std::string grid_text(const StageTable& table) {
  return grid_text(table, chain_edges(table.num_stages));
}

std::string grid_text(const StageTable& table, const StageEdges& edges) {
  GridRows rows(table.actions.size());
  StageProgress progress(edges);
  std::vector<std::size_t> next(table.actions.size(), 0);
  const auto unfinished = [&] {
    for (std::size_t pp_coordinate = 0; pp_coordinate < next.size(); ++pp_coordinate) {
      if (next[pp_coordinate] < table.actions[pp_coordinate].size()) return true;
    }
    return false;
  };
  while (unfinished()) {
    const auto started = starting(table, progress, next);
    for (std::size_t pp_coordinate = 0; pp_coordinate < next.size(); ++pp_coordinate) {
      if (started[pp_coordinate] != nullptr) {
        progress.finish(*started[pp_coordinate]);
        ++next[pp_coordinate];
      }
      rows[pp_coordinate].push_back(started[pp_coordinate] != nullptr ? to_string(*started[pp_coordinate]) : ".");
    }
  }
  return draw_grid("time", numbers(0, rows), rows);
}

std::string marked_grid(const StageTable& table, const std::vector<ActionPlace>& marks) {
  constexpr int kAround = 5;  // columns to either side of a mark
  int begin = marks.empty() ? 0 : marks[0].position;
  int end = begin + 1;
  for (const ActionPlace& mark : marks) {
    begin = std::min(begin, mark.position);
    end = std::max(end, mark.position + 1);
  }
  begin = std::max(begin - kAround, 0);
  end += kAround;
  GridRows rows(table.actions.size());
  for (std::size_t pp_coordinate = 0; pp_coordinate < rows.size(); ++pp_coordinate) {
    const auto& actions = table.actions[pp_coordinate];
    for (int i = begin; i < end && i < static_cast<int>(actions.size()); ++i) {
      const bool marked = std::ranges::any_of(marks, [&](const ActionPlace& mark) {
        return mark.pp_coordinate == static_cast<int>(pp_coordinate) && mark.position == i;
      });
      rows[pp_coordinate].push_back(
          fmt::format(fmt::runtime(marked ? "[{}]" : " {}"), to_string(actions[static_cast<std::size_t>(i)])));
    }
    if (end < static_cast<int>(actions.size())) rows[pp_coordinate].emplace_back(" ...");
  }
  std::string text = draw_grid("position", numbers(static_cast<std::size_t>(begin), rows), rows);
  text.pop_back();
  return text;
}

std::vector<int> peak_in_flight(const StageTable& table) {
  const bool keeps = !is_forward_only(table);
  std::vector<int> peaks;
  for (const auto& actions : table.actions) {
    int peak = 0;
    int in_flight = 0;
    for (const StageAction& action : actions) {
      if (action.kind == StageKind::F) peak = std::max(peak, ++in_flight);
      if (action.kind == StageKind::BW || action.kind == StageKind::W || !keeps) --in_flight;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<int> stage_peaks(const StageTable& table) {
  const bool keeps = !is_forward_only(table);
  std::vector<int> peaks(static_cast<std::size_t>(table.num_stages), 0);
  std::vector<int> in_flight(peaks.size(), 0);
  for (const auto& actions : table.actions) {
    for (const StageAction& action : actions) {
      const auto stage = static_cast<std::size_t>(action.stage);
      if (action.kind == StageKind::F) peaks.at(stage) = std::max(peaks.at(stage), ++in_flight.at(stage));
      if (action.kind == StageKind::BW || action.kind == StageKind::W || !keeps) --in_flight.at(stage);
    }
  }
  return peaks;
}

}  // namespace orthant
