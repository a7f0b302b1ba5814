#include "orthant/train/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "orthant/base/human.h"
#include "orthant/specs/totals.h"

namespace orthant {
namespace {

SummaryRow row_of(const UnitSpec& unit, const SummaryOptions& options) {
  SummaryRow row;
  row.name = unit.name;
  for (const ParameterSpec& parameter : unit.parameters) {
    const std::int64_t count = num_elements(parameter.shape);
    row.parameters += count;
    if (parameter.trainable) row.trainable += count;
  }
  const auto bytes = state_bytes(unit, {.parameters = options.parameters,
                                        .compute = options.compute,
                                        .reduce = options.gradients,
                                        .moments = options.optimizer_copies});
  row.parameters_bytes = bytes.parameters + bytes.compute_copy;
  row.gradients_bytes = bytes.gradients;
  row.optimizer_bytes = bytes.moments;
  const Recompute mode = unit.recomputable ? options.recompute : Recompute::none;
  row.kept_bytes = unit.cost.kept_bytes.at(static_cast<std::size_t>(mode)) * options.microbatches_in_flight;
  return row;
}

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// A name around one of its numbers: "towers.", 3, ".norm".
struct Numbered {
  std::string_view before;
  std::int64_t number = 0;
  std::string_view after;
};

// Every way to see `name` as a numbered one; a number stands between dots or at an end.
std::vector<Numbered> numberings(std::string_view name) {
  std::vector<Numbered> found;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    std::int64_t number = 0;
    const auto [stop, status] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (!part.empty() && is_digit(part.front()) && status == std::errc() && stop == part.data() + part.size()) {
      found.push_back({name.substr(0, begin), number, name.substr(end)});
    }
    begin = end + 1;
  }
  return found;
}

// How `next` continues `first`, the unit `distance` places before it.
std::optional<Numbered> continuation(std::string_view first, std::string_view next, std::int64_t distance) {
  for (const Numbered& start : numberings(first)) {
    for (const Numbered& here : numberings(next)) {
      if (here.before == start.before && here.after == start.after && here.number == start.number + distance)
        return start;
    }
  }
  return std::nullopt;
}

bool equal_figures(const SummaryRow& left, SummaryRow right) {
  right.name = left.name;
  return left == right;
}

void multiply(SummaryRow& row, std::int64_t count) {
  row.num_units = count;
  for (std::int64_t* figure : {&row.parameters, &row.trainable, &row.parameters_bytes, &row.gradients_bytes,
                               &row.optimizer_bytes, &row.kept_bytes}) {
    *figure *= count;
  }
}

SummaryRow total_of(const std::vector<SummaryRow>& rows) {
  SummaryRow total;
  total.name = "total";
  total.num_units = 0;
  for (const SummaryRow& row : rows) {
    total.num_units += row.num_units;
    total.parameters += row.parameters;
    total.trainable += row.trainable;
    total.parameters_bytes += row.parameters_bytes;
    total.gradients_bytes += row.gradients_bytes;
    total.optimizer_bytes += row.optimizer_bytes;
    total.kept_bytes += row.kept_bytes;
  }
  return total;
}

constexpr std::size_t kColumns = 8;
using Cells = std::array<std::string, kColumns>;

Cells cells_of(const SummaryRow& row, bool is_total) {
  const std::string times = row.num_units > 1 && !is_total ? fmt::format("  x{}", row.num_units) : "";
  return {row.name + times,
          format_count(row.parameters),
          format_count(row.trainable),
          format_bytes(row.parameters_bytes),
          format_bytes(row.gradients_bytes),
          format_bytes(row.optimizer_bytes),
          format_bytes(row.kept_bytes),
          format_bytes(row.total_bytes())};
}

std::string table(const std::vector<Cells>& lines) {
  std::array<std::size_t, kColumns> widths = {};
  for (const Cells& line : lines) {
    for (std::size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    text += fmt::format("{:<{}}", line[0], widths[0]);
    for (std::size_t c = 1; c < kColumns; ++c) text += fmt::format("  {:>{}}", line[c], widths[c]);
    text += "\n";
  }
  return text;
}

}  // namespace

std::vector<SummaryRow> summary_rows(const GraphSpec& graph, const SummaryOptions& options) {
  std::vector<SummaryRow> rows;
  for (std::size_t first = 0; first < graph.units.size();) {
    const UnitSpec& start = graph.units[first];
    SummaryRow row = row_of(start, options);
    std::int64_t count = 1;
    std::optional<Numbered> run;
    for (std::size_t next = first + 1; next < graph.units.size(); ++next, ++count) {
      const auto same_run = continuation(start.name, graph.units[next].name, count);
      if (!same_run || (run && run->before != same_run->before)) break;
      if (graph.units[next].kind != start.kind || !equal_figures(row, row_of(graph.units[next], options))) break;
      run = same_run;
    }
    if (run) {
      row.name = fmt::format("{}{}-{}{}", run->before, run->number, run->number + count - 1, run->after);
    }
    multiply(row, count);
    rows.push_back(std::move(row));
    first += static_cast<std::size_t>(count);
  }
  return rows;
}

std::string summary_text(const GraphSpec& graph, const SummaryOptions& options) {
  const std::vector<SummaryRow> rows = summary_rows(graph, options);
  std::vector<Cells> lines = {
      {"unit", "parameters", "trainable", "weights", "gradients", "optimizer", "activations", "together"}};
  for (const SummaryRow& row : rows) lines.push_back(cells_of(row, false));
  lines.push_back(cells_of(total_of(rows), true));
  return fmt::format("model {}: {} units on one rank, recompute {}, {} microbatch{} in flight\n{}", graph.name,
                     graph.units.size(), recompute_name(options.recompute), options.microbatches_in_flight,
                     options.microbatches_in_flight == 1 ? "" : "es", table(lines));
}

}  // namespace orthant
