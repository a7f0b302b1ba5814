// The examples of seed 001 as tables and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "orthant/base/text_table.h"
#include "orthant/plan/seed_figures.h"

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

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string seed_text(const std::vector<SeedExample>& examples) {
  std::string text;
  for (const SeedExample& example : examples) text += example_text(example) + "\n";
  return text + "Mistakes by number: docs/planner_seed001.md. GB is 1e9 bytes.\n";
}

std::string to_json(const std::vector<SeedExample>& examples, int indent) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const SeedExample& example : examples) {
    nlohmann::ordered_json figures = nlohmann::ordered_json::array();
    for (const SeedFigure& figure : example.figures) {
      figures.push_back({{"quantity", figure.quantity},
                         {"seed", or_null(figure.seed)},
                         {"corrected", or_null(figure.corrected)},
                         {"unit", figure.unit},
                         {"why", figure.why},
                         {"mistakes", figure.mistakes}});
    }
    json.push_back({{"example", example.name},
                    {"call", example.call},
                    {"runs", example.failure.empty()},
                    {"failure", example.failure},
                    {"figures", figures}});
  }
  return nlohmann::ordered_json{{"examples", json}}.dump(indent);
}

}  // namespace orthant
