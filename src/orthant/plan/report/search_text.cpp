// What the search found, as people read it: the best plan first, then what would help, the others, and why the rest
// fell out.
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/human.h"
#include "orthant/base/text_table.h"
#include "orthant/plan/search/search.h"

namespace orthant {
namespace {

std::string schedule_of(const Plan& plan) {
  if (plan.settings.mesh.degree(Axis::pp) == 1) return "-";
  const std::string& name = plan.settings.stages.schedule;
  return plan.virtual_stages > 1 ? fmt::format("{} x{}", name, plan.virtual_stages) : name;
}

std::string tensor_of(const PlanSettings& settings) {
  if (settings.mesh.degree(Axis::tp) == 1 || !settings.tensor.sequence_parallel) return "-";
  return settings.tensor.regather ? "sp*" : "sp";
}

std::string zero_of(const PlanSettings& settings) {
  return fmt::format("{}{}", settings.data.zero, settings.data.accumulate_sharded ? "*" : "");
}

std::string plans_table(const std::vector<Plan>& plans) {
  std::vector<TableLine> lines = {
      {"", "mesh", "schedule", "recompute", "tp", "zero", "rows", "GiB", "step", "tok/s", "MFU"}};
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    lines.push_back(
        {std::to_string(i + 1), plan.settings.mesh.to_string(), schedule_of(plan),
         std::string(plan_recompute_name(plan.settings.recompute)), tensor_of(plan.settings), zero_of(plan.settings),
         fmt::format("{}x{}", plan.settings.microbatches(), plan.settings.micro_batch),
         fmt::format("{:.1f}", static_cast<double>(plan.peak_bytes()) / (1 << 30)), format_seconds(plan.time.step),
         fmt::format("{:.0f}", plan.tokens_per_second_per_gpu), fmt::format("{:.1f}%", 100 * plan.mfu)});
  }
  return text_table(lines, 6) +
         "sp: sequence and loss parallel, * inputs gathered again; zero *: gradients scattered after every\n"
         "microbatch; rows: microbatches x rows of each; tok/s: per card\n";
}

// Broken where a shell may be told to go on: before an option, which stays with its value.
std::string wrapped(const std::string& command) {
  constexpr std::size_t kWidth = 94;
  std::string text;
  std::size_t column = 0;
  for (std::size_t at = 0; at < command.size();) {
    const std::size_t end = std::min(command.find(" --", at + 1), command.size());
    const std::size_t width = end - at;
    if (at > 0 && column + width > kWidth) {
      text += " \\\n     ";
      column = 5;
    }
    text += command.substr(at, width);
    column += width;
    at = end;
  }
  return text;
}

std::string advice_lines(const std::vector<Advice>& advice) {
  std::vector<TableLine> lines;
  for (const Advice& one : advice) lines.push_back({"", one.change, one.effect});
  return text_table(lines, 3);
}

std::string rejected_lines(const SearchResult& result) {
  std::vector<std::pair<std::string, std::int64_t>> reasons(result.rejected.begin(), result.rejected.end());
  std::ranges::sort(reasons, [](const auto& left, const auto& right) {
    return std::pair(-left.second, left.first) < std::pair(-right.second, right.first);
  });
  std::vector<TableLine> lines;
  for (const auto& [reason, count] : reasons) lines.push_back({"", reason, std::to_string(count)});
  return text_table(lines, 2);
}

}  // namespace

std::string search_text(const SearchResult& result, const SearchRequest& request) {
  std::string text;
  if (result.plans.empty()) {
    text = fmt::format("Nothing fits: {} ({} parameters) on {} x {}, {} sequences of {} tokens a step.\n",
                       request.model.name, format_count(request.model.num_parameters()), request.cards,
                       request.hardware.name, request.global_batch, request.sequence);
    if (!result.advice.empty()) text += "\nWhat would:\n" + advice_lines(result.advice);
  } else {
    const Plan& best = result.plans.front();
    text = plan_text(best, request.model, request.hardware);
    if (!result.simple.empty()) text += fmt::format("\n{}\n", result.simple);
    text += fmt::format("\nRun it{}:\n  {}\n", result.run.note.empty() ? "" : fmt::format(" ({})", result.run.note),
                        wrapped(run_command(result.run, best.settings)));
    if (!result.advice.empty()) text += "\nWhat would help most:\n" + advice_lines(result.advice);
    if (result.plans.size() > 1)
      text += fmt::format("\nThe best {}\n{}", result.plans.size(), plans_table(result.plans));
  }
  if (!result.rejected.empty()) text += "\nRejected\n" + rejected_lines(result);
  return text + fmt::format("\n{} configurations priced in {}.\n", result.evaluated, format_seconds(result.seconds));
}

}  // namespace orthant
