#include "orthant/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orthant/base/human.h"
#include "orthant/base/quantile.h"
#include "orthant/base/text_table.h"
#include "orthant/report/curve.h"
#include "orthant/report/page_parts.h"

namespace orthant::report {
namespace {

// Columns of metrics.jsonl that are drawn, and their titles.
constexpr std::pair<const char*, const char*> kCurves[] = {
    {"loss", "Loss"},
    {"grad_norm", "Gradient norm"},
    {"lr", "Learning rate"},
    {"tokens_per_second", "Tokens a second"},
    {"samples_per_second", "Samples a second"},
    {"step_seconds", "Seconds of a step"},
    {"peak_memory_bytes", "Peak memory of the largest rank, bytes"},
    {"model_flops_per_second", "Model FLOP/s"}};

struct KeyFigures {
  std::int64_t steps = 0;
  double loss = NAN, eval_loss = NAN, step_seconds = NAN, tokens_per_second = NAN, memory = NAN, flops = NAN;
};

double last_of(const RunFolder& run, const std::string& name) {
  const auto found = run.metrics.columns.find(name);
  return found == run.metrics.columns.end() || found->second.empty() ? NAN : found->second.back();
}

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

KeyFigures key_figures(const RunFolder& run) {
  KeyFigures figures;
  figures.steps = run.metrics.steps.empty() ? 0 : run.metrics.steps.back();
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
  std::vector<std::pair<std::string, std::string>> texts = {{"steps", fmt::format("{}", figures.steps)}};
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

// Checkpoints, restarts and bad steps by step.
std::vector<Mark> marks_of(const RunFolder& run) {
  std::vector<Mark> marks;
  for (const auto step : run.checkpoints) marks.push_back({step, "checkpoint"});
  std::int64_t at = 0;
  int starts = 0;
  for (const auto& line : run.log) {
    if (line.rank != 0) continue;
    long long step = 0;
    if (std::sscanf(line.text.c_str(), "saved the checkpoint of step %lld", &step) == 1) at = step;
    if (std::sscanf(line.text.c_str(), "step %lld: loss", &step) == 1 &&
        line.text.find("the update was left out") != std::string::npos) {
      marks.push_back({step, "bad step"});
    }
    if (line.text.find(" started: host ") != std::string::npos && starts++ > 0) marks.push_back({at, "restart"});
  }
  return marks;
}

std::string name_of_run(const RunFolder& run) {
  auto path = run.path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

std::string curves_section(const std::vector<ReportedRun>& runs) {
  std::string text =
      "<section aria-labelledby=\"curves-title\"><h2 id=\"curves-title\">Curves</h2>"
      "<p class=\"note\">Point at a curve, or focus it and press the arrow keys, to read values. Green marks: "
      "checkpoints; "
      "dashed: restarts; red: steps that were left out.</p>";
  if (runs.size() > 1) {
    text += "<div class=\"legend\">";
    for (std::size_t r = 0; r < runs.size(); ++r) {
      text += fmt::format(R"h(<span><span class="key" style="background:var(--c{})"></span>{}</span>)h", r % 6,
                          escaped(runs[r].run.path));
    }
    text += "</div>";
  }
  text += "<div class=\"curves\">";
  bool any = false;
  const auto draw = [&](const std::string& id, const std::string& title, const std::vector<Curve>& curves) {
    const auto svg = curve_svg(id, title, curves, runs.size() == 1 ? marks_of(runs.front().run) : std::vector<Mark>());
    any |= !svg.empty();
    text += svg;
  };
  for (const auto& [column, title] : kCurves) {
    std::vector<Curve> curves;
    for (const auto& run : runs) {
      const auto found = run.run.metrics.columns.find(column);
      if (found != run.run.metrics.columns.end()) {
        curves.push_back({name_of_run(run.run), run.run.metrics.steps, found->second, false});
      } else {
        curves.push_back({name_of_run(run.run), {}, {}, false});
      }
    }
    draw(fmt::format("curve-{}", column), title, curves);
  }
  std::set<std::string> names;
  for (const auto& run : runs) {
    for (const auto& eval : run.run.evals) {
      for (const auto& [name, value] : eval.items()) {
        if (name != "step" && value.is_number()) names.insert(name);
      }
    }
  }
  int number = 0;
  for (const auto& name : names) {
    std::vector<Curve> curves;
    for (const auto& run : runs) {
      auto& curve = curves.emplace_back(Curve{name_of_run(run.run), {}, {}, true});
      for (const auto& eval : run.run.evals) {
        if (!eval.contains(name) || !eval[name].is_number() || !eval.contains("step")) continue;
        curve.steps.push_back(eval["step"].get<std::int64_t>());
        curve.values.push_back(eval[name].get<double>());
      }
    }
    draw(fmt::format("eval-{}", number++), "Evaluation: " + name, curves);
  }
  return any ? text + "</div></section>" : "";
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    const bool bad = finding.cause != "nothing wrong" && finding.cause != "running";
    text += fmt::format("<div class=\"finding{}\"><p><b>{}</b>: {}</p>", bad ? " bad" : "", escaped(finding.cause),
                        escaped(finding.answer));
    for (const auto& evidence : finding.evidence)
      text += fmt::format("<p class=\"note\">shown by {}</p>", escaped(evidence));
    if (!finding.fix.empty()) text += fmt::format("<p class=\"note\">fix: {}</p>", escaped(finding.fix));
    text += "</div>";
  }
  return text;
}

std::string headline(const ReportedRun& run) {
  const auto figures = key_figures(run.run);
  const auto& cause = run.findings.front().cause;
  const bool fine = cause == "nothing wrong" || cause == "running";
  return fmt::format("{}: {} steps{}", name_of_run(run.run), figures.steps, fine ? "" : ", " + cause);
}

std::string figures_html(const RunFolder& run) {
  std::string text = "<dl class=\"figures\">";
  for (const auto& [name, value] : figure_texts(run)) {
    text += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
  }
  return text + "</dl>";
}

std::string compared_figures(const std::vector<ReportedRun>& runs) {
  std::map<std::string, std::vector<std::string>> rows;
  std::vector<std::string> order;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [name, value] : figure_texts(runs[r].run)) {
      auto& row = rows[name];
      if (row.empty()) {
        row.resize(runs.size());
        order.push_back(name);
      }
      row[r] = value;
    }
  }
  std::string text =
      "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Runs side by side\"><table><tr><th></th>";
  for (const auto& run : runs) text += "<th>" + escaped(name_of_run(run.run)) + "</th>";
  text += "</tr>";
  for (const auto& name : order) {
    text += "<tr><td>" + escaped(name) + "</td>";
    for (const auto& value : rows[name]) text += "<td>" + escaped(value) + "</td>";
    text += "</tr>";
  }
  return text + "</table></div>";
}

}  // namespace

std::vector<Difference> differences(const std::vector<ReportedRun>& runs) {
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [name, value] : flat_settings(runs[r].run.config)) {
      auto& row = values[name];
      row.resize(runs.size());
      row[r] = value;
    }
  }
  std::vector<Difference> found;
  for (const auto& [name, row] : values) {
    if (std::ranges::any_of(row, [&](const auto& value) { return value != row.front(); })) found.push_back({name, row});
  }
  return found;
}

std::string report_html(const std::vector<ReportedRun>& runs) {
  const auto& first = runs.front();
  const bool several = runs.size() > 1;
  const auto title = several ? fmt::format("{} runs side by side", runs.size()) : headline(first);
  auto text = page_head("orthant report: " + title);
  text += fmt::format("<header id=\"answer\" tabindex=\"-1\"><p class=\"kicker\">orthant report {}</p><h1>{}</h1>",
                      several ? "" : escaped(first.run.path), escaped(title));
  text += several ? compared_figures(runs) : figures_html(first.run);
  text += "</header>";
  if (!several) {
    text += "<section aria-labelledby=\"doctor-title\"><h2 id=\"doctor-title\">What became of it</h2>" +
            findings_text(first.findings) + "</section>";
  }
  text += curves_section(runs);
  if (!several) {
    if (const auto parts = step_parts(first.run)) text += parts_section(*parts);
    text += schedule_section(first.run) + prediction_section(first.run) + facts_section(first.run);
  }
  text += settings_section(runs);
  if (several) {
    for (const auto& run : runs) {
      text += fmt::format("<section><h2>{}</h2>{}</section>", escaped(headline(run)), findings_text(run.findings));
    }
  }
  return text + page_foot();
}

std::string report_text(const std::vector<ReportedRun>& runs) {
  std::string text;
  for (const auto& run : runs) {
    text += headline(run) + "\n";
    std::vector<TableLine> lines;
    for (const auto& [name, value] : figure_texts(run.run)) lines.push_back({"  " + name, value});
    text += text_table(lines);
    if (const auto parts = step_parts(run.run)) {
      text += "  where the step of the slowest rank goes:\n";
      const auto slowest = *std::ranges::max_element(parts->ranks, {}, &StepParts::Rank::step_seconds);
      for (std::size_t p = 0; p < parts->names.size(); ++p) {
        const double share = slowest.seconds[p] / std::max(slowest.step_seconds, 1e-12);
        if (share >= 0.01) text += fmt::format("    {:26} {:5.1f}%\n", parts->names[p], 100 * share);
      }
    }
    text += to_text(run.run, run.findings) + "\n";
  }
  for (const auto& difference : runs.size() > 1 ? differences(runs) : std::vector<Difference>()) {
    text += difference.name + ":";
    for (const auto& value : difference.values) text += " " + (value.empty() ? std::string("-") : value);
    text += "\n";
  }
  return text;
}

}  // namespace orthant::report
