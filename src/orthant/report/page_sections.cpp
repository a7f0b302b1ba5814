#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orthant/base/human.h"
#include "orthant/report/curve.h"
#include "orthant/report/page_parts.h"

namespace orthant::report {
namespace {

using trace::EventKind;

constexpr std::size_t kMostBars = 32;  // ranks drawn beside one another
constexpr std::size_t kMostActionsDrawn = 4000;

std::optional<StepParts> parts_of_profile(const nlohmann::ordered_json& profile) {
  if (!profile.is_object() || !profile.contains("ranks") || profile["ranks"].empty()) return std::nullopt;
  StepParts parts;
  parts.profiled = true;
  for (const auto& rank : profile["ranks"]) {
    StepParts::Rank one{.rank = rank.value("rank", 0), .step_seconds = rank.value("step_seconds", 0.0), .seconds = {}};
    for (const auto& [name, seconds] : rank["parts"].items()) {
      if (parts.ranks.empty()) parts.names.push_back(name);
      one.seconds.push_back(seconds.is_number() ? seconds.get<double>() : 0);
    }
    parts.ranks.push_back(std::move(one));
  }
  return parts;
}

std::vector<trace::NamedEvent> ended(const trace::RankRecord& record) {
  std::vector<trace::NamedEvent> events;
  for (const auto& event : record.events) {
    if (!event.is_open()) events.push_back(event);
  }
  std::ranges::sort(events, [](const auto& a, const auto& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.number < b.number;
  });
  return trace::of_steps(events);
}

// Of a bar or a schedule: text at the left, then what is drawn to scale.
constexpr double kBarsWidth = 1000, kBarsLeft = 84, kBarHeight = 20, kBarGap = 6;

std::string rectangle(double from, double to, double y, const std::string& fill, const std::string& title) {
  return fmt::format(
      R"h(<rect class="action" x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{}" style="fill:var(--{})"><title>{}</title></rect>)h",
      from, y, std::max(0.2, to - from), kBarHeight, fill, escaped(title));
}

std::string row_label(double y, const std::string& text) {
  return fmt::format(R"(<text x="0" y="{:.1f}">{}</text>)", y + 14, escaped(text));
}

std::string action_fill(const std::string& text) {
  if (text.starts_with("F ")) return "forward";
  if (text.starts_with("W ")) return "weights";
  return text.starts_with("B") ? "backward" : "p10";
}

// The last step that all ranks have whole, drawn on one clock.
std::string executed_svg(const RunFolder& run) {
  std::map<int, int> seen;  // step -> ranks that have all of it
  std::vector<std::vector<trace::NamedEvent>> events;
  for (const auto& rank : run.ranks) {
    events.push_back(ended(rank));
    for (const auto& event : events.back()) {
      if (event.kind == EventKind::phase && event.text == "work") ++seen[event.step];
    }
  }
  int step = -1;
  for (const auto& [number, ranks] : seen) {
    if (ranks == static_cast<int>(run.ranks.size())) step = number;
  }
  if (step < 0) return "";
  std::int64_t first = 0, last = 0;
  std::size_t num_actions = 0;
  for (const auto& of_rank : events) {
    for (const auto& event : of_rank) {
      if (event.kind != EventKind::action || event.step != step) continue;
      if (first == 0 || event.begin_ns < first) first = event.begin_ns;
      last = std::max(last, event.end_ns);
      ++num_actions;
    }
  }
  if (num_actions == 0 || num_actions > kMostActionsDrawn || run.ranks.size() > kMostBars) return "";
  const auto x = [&](std::int64_t ns) {
    return kBarsLeft + static_cast<double>(ns - first) / static_cast<double>(last - first) * (kBarsWidth - kBarsLeft);
  };
  const double height = static_cast<double>(run.ranks.size()) * (kBarHeight + kBarGap);
  std::string text = fmt::format(
      R"(<figure><figcaption>Step {} as executed: {}</figcaption><div class="wide" tabindex="0" role="region" aria-label="Drawn to scale"><svg class="bars" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="Actions of step {} by rank and time">)",
      step, format_seconds(static_cast<double>(last - first) * 1e-9), kBarsWidth, height, step);
  for (std::size_t r = 0; r < events.size(); ++r) {
    const double y = static_cast<double>(r) * (kBarHeight + kBarGap);
    text += row_label(y, fmt::format("rank {}", run.ranks[r].header.rank));
    for (const auto& event : events[r]) {
      if (event.kind != EventKind::action || event.step != step) continue;
      const auto microbatch = event.microbatch >= 0 ? fmt::format(" m{}", event.microbatch) : "";
      text += rectangle(x(event.begin_ns), x(event.end_ns), y, action_fill(event.text),
                        fmt::format("{}{}: {}", event.text, microbatch, format_seconds(event.seconds())));
    }
  }
  return text + "</svg></div></figure>";
}

// {"makespan":..,"rows":[[[name,begin,end],...],...]}, of a profile.
std::string simulated_svg(const nlohmann::ordered_json& schedule) {
  const double makespan = schedule.value("simulated_seconds", 0.0);
  if (makespan <= 0 || !schedule.contains("simulated")) return "";
  const auto& rows = schedule["simulated"];
  std::string text = fmt::format(
      R"(<figure><figcaption>The simulator's step from the measured costs: {} (the run's lists took {})</figcaption><div class="wide" tabindex="0" role="region" aria-label="Drawn to scale"><svg class="bars" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="Simulated schedule by pp coordinate">)",
      format_seconds(makespan), format_seconds(schedule.value("list_seconds", 0.0)), kBarsWidth,
      static_cast<double>(rows.size()) * (kBarHeight + kBarGap));
  double y = 0;
  int pp = 0;
  for (const auto& row : rows) {
    text += row_label(y, fmt::format("pp {}", pp++));
    for (const auto& action : row) {
      const auto name = action.at(0).get<std::string>();
      const auto at = [&](std::size_t i) {
        return kBarsLeft + action.at(i).get<double>() / makespan * (kBarsWidth - kBarsLeft);
      };
      const auto kind = name.find_first_not_of("0123456789");
      const auto fill = kind == std::string::npos ? "p10" : action_fill(name.substr(kind, 1) + " ");
      text += rectangle(at(1), at(2), y, name.find('B') != std::string::npos ? "backward" : fill, name);
    }
    y += kBarHeight + kBarGap;
  }
  return text + "</svg></div></figure>";
}

// Numbers as people read them, lists element by element.
std::string shown(const std::string& name, const nlohmann::ordered_json& value) {
  if (value.is_array()) {
    std::string text;
    for (const auto& element : value) text += (text.empty() ? "" : ", ") + shown(name, element);
    return text;
  }
  if (!value.is_number()) return value.is_null() ? "" : value.dump();
  if (name.ends_with("bytes")) return format_bytes(std::llround(value.get<double>()));
  if (name.ends_with("seconds")) return format_seconds(value.get<double>());
  return short_number(value.get<double>());
}

void flatten(const nlohmann::ordered_json& value, const std::string& name,
             std::vector<std::pair<std::string, std::string>>& all) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) flatten(inner, name.empty() ? key : name + "." + key, all);
    return;
  }
  all.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

std::optional<StepParts> step_parts(const RunFolder& run) {
  if (auto profiled = parts_of_profile(run.profile)) return profiled;
  std::vector<trace::RankTrace> traces;
  for (const auto& rank : run.ranks) {
    traces.push_back({.rank = rank.header.rank, .place = "", .clock_error_ns = 0, .events = ended(rank)});
  }
  const auto table = trace::step_table(traces, {}, {});
  if (table.num_steps == 0) return std::nullopt;
  StepParts parts;
  // Operations are not in the flight: the time in actions is one part.
  for (int p = 0; p < trace::kNumParts; ++p) {
    const auto part = static_cast<trace::Part>(p);
    parts.names.emplace_back(part == trace::Part::between ? "computing" : trace::name_of(part));
  }
  for (const auto& rank : table.ranks) {
    parts.ranks.push_back({rank.rank, rank.step_seconds, {rank.seconds.begin(), rank.seconds.end()}});
  }
  return parts;
}

std::string parts_section(const StepParts& parts) {
  double longest = 0;
  for (const auto& rank : parts.ranks) longest = std::max(longest, rank.step_seconds);
  std::string text = fmt::format(
      "<section aria-labelledby=\"parts-title\"><h2 id=\"parts-title\">Where the step goes, rank by rank</h2>"
      "<p class=\"note\">{}</p><div class=\"legend\">",
      parts.profiled ? "Of the profiled steps, on average."
                     : "Of the last steps that the ranks recorded, on average. "
                       "--profile 5 tells products, attention and the rest apart.");
  std::set<std::size_t> used;
  for (std::size_t p = 0; p < parts.names.size(); ++p) {
    const bool any =
        std::ranges::any_of(parts.ranks, [&](const auto& rank) { return rank.seconds[p] > 0.002 * rank.step_seconds; });
    if (!any) continue;
    used.insert(p);
    text += fmt::format(R"h(<span><span class="key" style="background:var(--p{})"></span>{}</span>)h", p,
                        escaped(parts.names[p]));
  }
  const auto drawn = std::min(parts.ranks.size(), kMostBars);
  text += fmt::format(
      R"(</div><div class="wide" tabindex="0" role="region" aria-label="Drawn to scale"><svg class="bars" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="Parts of a step by rank">)",
      kBarsWidth, static_cast<double>(drawn) * (kBarHeight + kBarGap));
  std::string rows;
  for (std::size_t r = 0; r < parts.ranks.size(); ++r) {
    const auto& rank = parts.ranks[r];
    const double y = static_cast<double>(r) * (kBarHeight + kBarGap);
    double at = kBarsLeft;
    rows += fmt::format("<tr><td>rank {}</td><td>{}</td>", rank.rank, format_seconds(rank.step_seconds));
    if (r < drawn) text += row_label(y, fmt::format("rank {}", rank.rank));
    for (const auto p : used) {
      const double share = rank.seconds[p] / std::max(rank.step_seconds, 1e-12);
      rows += fmt::format("<td>{:.1f}%</td>", 100 * share);
      const double to = at + rank.seconds[p] / std::max(longest, 1e-12) * (kBarsWidth - kBarsLeft);
      if (r < drawn && to > at) {
        text +=
            rectangle(at, to, y, fmt::format("p{}", p),
                      fmt::format("{}: {} ({:.1f}%)", parts.names[p], format_seconds(rank.seconds[p]), 100 * share));
      }
      at = to;
    }
    rows += "</tr>";
  }
  text +=
      "</svg></div><details><summary>Figures</summary><div class=\"wide\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Parts "
      "of a step\"><table><tr><th>rank</th><th>step</th>";
  for (const auto p : used) text += fmt::format("<th>{}</th>", escaped(parts.names[p]));
  return text + "</tr>" + rows + "</table></div></details></section>";
}

std::string schedule_section(const RunFolder& run) {
  const auto executed = executed_svg(run);
  std::string simulated;
  if (run.profile.is_object() && run.profile.contains("schedule")) simulated = simulated_svg(run.profile["schedule"]);
  if (executed.empty() && simulated.empty()) return "";
  return "<section aria-labelledby=\"schedule-title\"><h2 id=\"schedule-title\">The schedule of a step</h2>"
         "<div class=\"legend\"><span><span class=\"key\" style=\"background:var(--forward)\"></span>forward</span>"
         "<span><span class=\"key\" style=\"background:var(--backward)\"></span>backward</span>"
         "<span><span class=\"key\" style=\"background:var(--weights)\"></span>backward of weights</span>"
         "<span><span class=\"key\" style=\"background:var(--p10)\"></span>gathers, sums, messages</span></div>" +
         executed + simulated + "</section>";
}

std::vector<std::pair<std::string, std::string>> flat_settings(const nlohmann::ordered_json& config) {
  std::vector<std::pair<std::string, std::string>> all;
  if (config.is_object()) flatten(config, "", all);
  return all;
}

std::string settings_section(const std::vector<ReportedRun>& runs) {
  const bool several = runs.size() > 1;
  std::string text = fmt::format("<section aria-labelledby=\"settings-title\"><h2 id=\"settings-title\">{}</h2>",
                                 several ? "Settings that differ" : "Configuration");
  std::string rows;
  if (several) {
    for (const auto& difference : differences(runs)) {
      rows += "<tr><td>" + escaped(difference.name) + "</td>";
      for (const auto& value : difference.values) rows += "<td>" + escaped(value) + "</td>";
      rows += "</tr>";
    }
    if (rows.empty()) return text + "<p class=\"note\">None: the runs have the same configuration.</p></section>";
    text +=
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Settings that differ\"><table "
        "class=\"texts\"><tr><th>setting</th>";
    for (const auto& run : runs) text += "<th>" + escaped(run.run.path) + "</th>";
    return text + "</tr>" + rows + "</table></div></section>";
  }
  for (const auto& [name, value] : flat_settings(runs.front().run.config)) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value));
  }
  if (rows.empty()) return "";
  return text +
         "<details><summary>All settings</summary><div class=\"wide\" tabindex=\"0\" role=\"region\" "
         "aria-label=\"Configuration\"><table class=\"texts\">" +
         rows + "</table></div></details></section>";
}

std::string prediction_section(const RunFolder& run) {
  if (!run.result.is_object() || !run.result.contains("predicted") || !run.result.contains("measured")) return "";
  std::string rows;
  for (const auto& [name, value] : run.result["predicted"].items()) {
    const auto& measured = run.result["measured"];
    if (value.is_null() || value.is_object() || !measured.contains(name)) continue;
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>", escaped(name), escaped(shown(name, value)),
                        escaped(shown(name, measured[name])));
  }
  if (rows.empty()) return "";
  return "<section aria-labelledby=\"prediction-title\"><h2 id=\"prediction-title\">Predicted against measured</h2>"
         "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Predicted against "
         "measured\"><table><tr><th></th>"
         "<th>predicted</th><th>measured</th></tr>" +
         rows + "</table></div></section>";
}

std::string facts_section(const RunFolder& run) {
  if (run.ranks.empty()) return "";
  std::map<std::string, std::pair<std::vector<int>, const trace::FlightHeader*>> hosts;
  for (const auto& rank : run.ranks) {
    auto& [ranks, header] = hosts[rank.host()];
    ranks.push_back(rank.header.rank);
    header = &rank.header;
  }
  std::string rows;
  for (const auto& [host, of] : hosts) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", escaped(host), of.first.size(),
                        of.second->threads, of.second->cores);
  }
  return "<section aria-labelledby=\"hosts-title\"><h2 id=\"hosts-title\">Where it ran</h2><table><tr><th>host</th>"
         "<th>ranks</th><th>threads of a rank</th><th>cores</th></tr>" +
         rows + "</table></section>";
}

}  // namespace orthant::report
