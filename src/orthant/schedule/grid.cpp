#include "orthant/schedule/grid.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/schedule/stage_chain.h"

namespace orthant {
namespace {

using Cells = std::vector<std::vector<std::string>>;  // per row

// Rows of cells of one width under a line of column numbers.
std::string draw(std::string_view columns, std::size_t first_column, const Cells& rows) {
  std::size_t width = 1;
  std::size_t num_columns = 0;
  for (const auto& row : rows) {
    num_columns = std::max(num_columns, row.size());
    for (const std::string& cell : row) width = std::max(width, cell.size());
  }
  width = std::max(width, fmt::formatted_size("{}", first_column + num_columns));
  const std::size_t label_width = std::max(columns.size(), fmt::formatted_size("rank {}", rows.size()));
  const auto line = [&](std::string_view label, const std::vector<std::string>& cells) {
    std::string text = fmt::format("{:<{}} |", label, label_width);
    for (const std::string& cell : cells) text += fmt::format(" {:<{}}", cell, width);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::vector<std::string> numbers;
  for (std::size_t c = 0; c < num_columns; ++c) numbers.push_back(std::to_string(first_column + c));
  std::string text = line(columns, numbers);
  for (std::size_t r = 0; r < rows.size(); ++r) text += line(fmt::format("rank {}", r), rows[r]);
  return text;
}

// The actions of one time step: per rank the one that starts, or none.
std::vector<const StageAction*> starting(const StageTable& table, const StageChain& chain,
                                         const std::vector<std::size_t>& next) {
  std::vector<const StageAction*> started(next.size(), nullptr);
  const StageAction* first_waiting = nullptr;
  std::size_t waiting_rank = 0;
  bool any = false;
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] == table.ranks[rank].size()) continue;
    const StageAction* action = &table.ranks[rank][next[rank]];
    if (chain.ready(*action)) {
      started[rank] = action;
      any = true;
    } else if (first_waiting == nullptr) {
      first_waiting = action;
      waiting_rank = rank;
    }
  }
  if (!any && first_waiting != nullptr) started[waiting_rank] = first_waiting;
  return started;
}

}  // namespace

std::string grid_text(const StageTable& table) {
  Cells rows(table.ranks.size());
  StageChain chain(table.num_stages);
  std::vector<std::size_t> next(table.ranks.size(), 0);
  const auto unfinished = [&] {
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      if (next[rank] < table.ranks[rank].size()) return true;
    }
    return false;
  };
  while (unfinished()) {
    const auto started = starting(table, chain, next);
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      if (started[rank] != nullptr) {
        chain.finish(*started[rank]);
        ++next[rank];
      }
      rows[rank].push_back(started[rank] != nullptr ? to_string(*started[rank]) : ".");
    }
  }
  return draw("time", 0, rows);
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
  Cells rows(table.ranks.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const auto& actions = table.ranks[rank];
    for (int i = begin; i < end && i < static_cast<int>(actions.size()); ++i) {
      const bool marked = std::ranges::any_of(
          marks, [&](const ActionPlace& mark) { return mark.rank == static_cast<int>(rank) && mark.position == i; });
      rows[rank].push_back(
          fmt::format(fmt::runtime(marked ? "[{}]" : " {}"), to_string(actions[static_cast<std::size_t>(i)])));
    }
    if (end < static_cast<int>(actions.size())) rows[rank].emplace_back(" ...");
  }
  std::string text = draw("position", static_cast<std::size_t>(begin), rows);
  text.pop_back();
  return text;
}

std::vector<int> peak_in_flight(const StageTable& table) {
  const bool keeps = !is_forward_only(table);
  std::vector<int> peaks;
  for (const auto& actions : table.ranks) {
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

}  // namespace orthant
