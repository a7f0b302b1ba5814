#include "orthant/report/figures.h"

#include <fmt/format.h>

#include "orthant/base/human.h"
#include "orthant/base/quantile.h"
#include "orthant/report/curve.h"

namespace orthant::report {
namespace {

// Of the last thousand steps.
double median_of(const RunFolder& run, const std::string& name) {
  const auto found = run.metrics.columns.find(name);
  if (found == run.metrics.columns.end()) return NAN;
  std::vector<double> finite;
  const auto& all = found->second;
  for (std::size_t i = all.size() > 1000 ? all.size() - 1000 : 0; i < all.size(); ++i) {
    if (std::isfinite(all[i])) finite.push_back(all[i]);
  }
  return finite.empty() ? NAN : quantile(finite, 0.5);
}

std::int64_t planned_steps(const nlohmann::ordered_json& config) {
  if (!config.is_object() || !config.contains("train") || !config["train"].is_object()) return 0;
  const auto& train = config["train"];
  return train.contains("steps") && train["steps"].is_number_integer() ? train["steps"].get<std::int64_t>() : 0;
}

}  // namespace

double last_of(const RunFolder& run, const std::string& name) {
  const auto found = run.metrics.columns.find(name);
  return found == run.metrics.columns.end() || found->second.empty() ? NAN : found->second.back();
}

KeyFigures key_figures(const RunFolder& run) {
  KeyFigures figures;
  figures.steps = run.metrics.steps.empty() ? 0 : run.metrics.steps.back();
  figures.planned_steps = planned_steps(run.config);
  figures.loss = last_of(run, "loss");
  if (!run.evals.empty()) {
    const auto& eval = run.evals.back();
    if (eval.contains("loss") && eval["loss"].is_number()) figures.eval_loss = eval["loss"].get<double>();
  }
  figures.step_seconds = median_of(run, "step_seconds");
  figures.tokens_per_second = median_of(run, "tokens_per_second");
  figures.memory = last_of(run, "peak_memory_bytes");
  figures.flops = median_of(run, "model_flops_per_second");
  return figures;
}

std::vector<std::pair<std::string, std::string>> figure_texts(const RunFolder& run) {
  const auto figures = key_figures(run);
  std::vector<std::pair<std::string, std::string>> texts = {
      {figures.steps < figures.planned_steps ? fmt::format("steps of {}", figures.planned_steps) : "steps",
       fmt::format("{}", figures.steps)}};
  const auto add = [&](const char* name, double value, const auto& text) {
    if (std::isfinite(value)) texts.emplace_back(name, text(value));
  };
  add("loss", figures.loss, [](double value) { return fmt::format("{:.4g}", value); });
  add("evaluation loss", figures.eval_loss, [](double value) { return fmt::format("{:.4g}", value); });
  add("a step (median)", figures.step_seconds, [](double value) { return format_seconds(value); });
  add("tokens a second", figures.tokens_per_second, [](double value) { return short_number(value); });
  add("peak memory", figures.memory, [](double value) { return format_bytes(std::llround(value)); });
  add("model FLOP/s", figures.flops, [](double value) { return short_number(value); });
  return texts;
}

}  // namespace orthant::report
