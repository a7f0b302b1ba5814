// The examples of seed 001 as tables.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "orthant/base/text_table.h"
#include "plan/estimate/seed_figures.h"

namespace orthant {
namespace {

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "-";
}

std::string example_text(const SeedExample& example) {
  std::vector<TableLine> lines = {{"  quantity", "seed", "corrected", "unit", "mistakes", "why"}};
  for (const SeedFigure& figure : example.figures) {
    lines.push_back({"  " + figure.quantity, number(figure.seed), number(figure.corrected), figure.unit,
                     fmt::format("{}", fmt::join(figure.mistakes, " ")), figure.why});
  }
  const std::string outcome =
      example.failure.empty() ? "" : fmt::format("  as printed: {}; figures are of what was meant\n", example.failure);
  return fmt::format("{}\n  {}\n{}{}", example.name, example.call, outcome, text_table(lines, lines.front().size()));
}

}  // namespace

std::string seed_text(const std::vector<SeedExample>& examples) {
  std::string text;
  for (const SeedExample& example : examples) text += example_text(example) + "\n";
  return text + "Mistakes by number: docs/planner_seed001.md. GB is 1e9 bytes.\n";
}

}  // namespace orthant
