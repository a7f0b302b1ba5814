#include "orthant/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orthant/base/human.h"
#include "orthant/base/text_table.h"
#include "orthant/report/curve.h"
#include "orthant/report/figures.h"
#include "orthant/report/marks.h"
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

std::vector<PagePiece> page_pieces(const std::vector<ReportedRun>& runs) {
  const auto& first = runs.front();
  const bool several = runs.size() > 1;
  std::vector<PagePiece> pieces;
  pieces.push_back({"answer", fmt::format("<p class=\"kicker\">orthant report {}</p><h1>{}</h1>{}",
                                          several ? "" : escaped(first.run.path), escaped(page_title(runs)),
                                          several ? compared_figures(runs) : figures_html(first.run))});
  if (!several) {
    pieces.push_back(
        {"doctor", "<section aria-labelledby=\"doctor-title\"><h2 id=\"doctor-title\">What became of it</h2>" +
                       findings_text(first.findings) + "</section>"});
  }
  pieces.push_back({"curves", curves_section(runs)});
  if (!several) {
    const auto parts = step_parts(first.run);
    pieces.push_back({"parts", parts ? parts_section(*parts) : ""});
    pieces.push_back({"schedule", schedule_section(first.run)});
    pieces.push_back({"prediction", prediction_section(first.run)});
    pieces.push_back({"hosts", facts_section(first.run)});
  }
  pieces.push_back({"settings", settings_section(runs)});
  std::string of_each;
  for (const auto& run : several ? runs : std::vector<ReportedRun>()) {
    of_each += fmt::format("<section><h2>{}</h2>{}</section>", escaped(headline(run)), findings_text(run.findings));
  }
  if (several) pieces.push_back({"findings", of_each});
  return pieces;
}

std::string page_title(const std::vector<ReportedRun>& runs) {
  return runs.size() > 1 ? fmt::format("{} runs side by side", runs.size()) : headline(runs.front());
}

std::string page_of_pieces(const std::string& title, const std::vector<PagePiece>& pieces, const std::string& live) {
  auto text = page_head("orthant report: " + title);
  if (!live.empty()) {
    text +=
        fmt::format("<p class=\"live\" id=\"live\" role=\"status\" data-since=\"{}\">connecting</p>", escaped(live));
  }
  for (const auto& piece : pieces) {
    text +=
        fmt::format("<div id=\"{}\"{}>{}</div>", piece.id, piece.id == "answer" ? " tabindex=\"-1\"" : "", piece.html);
  }
  return text + page_foot(!live.empty());
}

std::string report_html(const std::vector<ReportedRun>& runs) {
  return page_of_pieces(page_title(runs), page_pieces(runs));
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
