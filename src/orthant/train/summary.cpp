#include "orthant/train/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "orthant/base/human.h"
#include "orthant/base/name_runs.h"
#include "orthant/base/text_table.h"
#include "orthant/models/totals.h"

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

TableLine cells_of(const SummaryRow& row, bool is_total) {
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

}  // namespace

std::vector<SummaryRow> summary_rows(const GraphSpec& graph, const SummaryOptions& options) {
  std::vector<SummaryRow> all;
  std::vector<std::string> names;
  for (const UnitSpec& unit : graph.units) {
    all.push_back(row_of(unit, options));
    names.push_back(unit.name);
  }
  std::vector<SummaryRow> rows;
  const auto runs = name_runs(names, [&](std::size_t first, std::size_t next) {
    return graph.units[first].kind == graph.units[next].kind && equal_figures(all[first], all[next]);
  });
  for (const NameRun& run : runs) {
    SummaryRow row = all[run.first];
    row.name = run.name;
    multiply(row, static_cast<std::int64_t>(run.count));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string summary_text(const GraphSpec& graph, const SummaryOptions& options) {
  const std::vector<SummaryRow> rows = summary_rows(graph, options);
  std::vector<TableLine> lines = {
      {"unit", "parameters", "trainable", "weights", "gradients", "optimizer", "activations", "together"}};
  for (const SummaryRow& row : rows) lines.push_back(cells_of(row, false));
  lines.push_back(cells_of(total_of(rows), true));
  return fmt::format(
      "model {}: {} units on one rank, recompute {}, {} microbatch{} in flight\n{}", graph.name, graph.units.size(),
      options.remade.empty() ? std::string(recompute_name(options.recompute))
                             : fmt::format("{}", fmt::join(options.remade, ", ")),
      options.microbatches_in_flight, options.microbatches_in_flight == 1 ? "" : "es", text_table(lines));
}

}  // namespace orthant
