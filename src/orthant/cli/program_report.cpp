#include "orthant/cli/program_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orthant/base/index.h"
#include "orthant/base/name_runs.h"
#include "orthant/graph/backward.h"
#include "orthant/program/print.h"
#include "orthant/program/unit_programs.h"
#include "orthant/train/planned_trainer.h"
#include "orthant/train/run.h"

namespace orthant::cli {
namespace {

// Units that run one program on microbatches of one size.
struct Section {
  std::vector<std::string> units;
  std::string kind;
  Program program;
  UnitSizes sizes;
};

bool same_sizes(const UnitSizes& a, const UnitSizes& b) {
  return a.rows == b.rows && a.sequence == b.sequence && a.compute == b.compute;
}

// As the ranks would compile them.
std::vector<Section> sections_of(const RunConfig& config) {
  GraphSpec graph = run_spec(config);
  mark_gradients(graph);
  // A head that is the loss makes gradients in forward where its backward follows at once.
  UnitPrograms programs(graph, remake_of(config.trainer.recompute, config.trainer.remade),
                        {.gradients_in_forward = true});
  std::vector<Section> sections;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitSpec& unit = graph.units[u];
    if (!unit.body) continue;
    const UnitSizes sizes = unit_sizes(graph, unit, graph.tensor.value_or(TensorSharing{}));
    const Program& program = programs[u];
    const auto same = std::ranges::find_if(
        sections, [&](const Section& other) { return other.program == program && same_sizes(other.sizes, sizes); });
    if (same == sections.end()) {
      sections.push_back({{unit.name}, unit.kind, program, sizes});
    } else {
      same->units.push_back(unit.name);
    }
  }
  return sections;
}

// Whether the schedule makes gradients of inputs and of weights apart.
bool splits_backward(const RunConfig& config) {
  const GraphSpec graph = run_spec(config);
  const Pipeline pipeline = trainer_pipeline(graph, config.mesh, config.trainer);
  const auto steps = rank_steps(pipeline, graph, config.mesh, config.trainer);
  return std::ranges::any_of(steps, [](const RankStep& step) {
    return std::ranges::find(step.actions, ActionKind::backward_input, &Action::kind) != step.actions.end();
  });
}

// "layers.0-11, tail"
std::string title_of(const Section& section) {
  std::vector<std::string> names;
  for (const auto& run : name_runs(section.units, [](std::size_t, std::size_t) { return true; })) {
    names.push_back(run.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string programs_text(const RunConfig& config) {
  const bool split = splits_backward(config);
  std::string text;
  for (const auto& section : sections_of(config)) {
    text +=
        fmt::format("\n{} ({}), {} row{} of {} token{}\n", title_of(section), section.kind, section.sizes.rows,
                    section.sizes.rows == 1 ? "" : "s", section.sizes.sequence, section.sizes.sequence == 1 ? "" : "s");
    text += to_string(section.program, section.sizes, split);
  }
  return text;
}

nlohmann::ordered_json programs_document(const RunConfig& config) {
  nlohmann::ordered_json document = {{"mesh", config.mesh.to_string()}, {"programs", nlohmann::ordered_json::array()}};
  for (const auto& section : sections_of(config)) {
    nlohmann::ordered_json one = {{"units", section.units},
                                  {"kind", section.kind},
                                  {"rows", section.sizes.rows},
                                  {"sequence", section.sizes.sequence}};
    one.update(program_document(section.program, section.sizes));
    document["programs"].push_back(std::move(one));
  }
  return document;
}

}  // namespace orthant::cli
