#include "orthant/schedule/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace orthant {
namespace {

// Pixels.
constexpr double kLeft = 64;    // names of pp coordinates
constexpr double kRight = 150;  // idle time and kept microbatches
constexpr double kTop = 92;     // title, legend and the time axis
constexpr double kBoxHeight = 30;
constexpr double kRowHeight = 36;
constexpr double kNarrowestBox = 24;  // of the shortest action, unless the picture grows too wide
constexpr double kWidest = 6000;
constexpr double kLeast = 780;  // for title and legend
constexpr double kTickDistance = 60;

struct Look {
  StageKind kind;
  std::string_view name;
  std::string_view meaning;
};

// Colours of Okabe and Ito; from light to dark in grey: B, F, BW, W.
constexpr std::array<Look, 4> kLooks = {{{StageKind::F, "F", "forward"},
                                         {StageKind::B, "B", "backward for inputs"},
                                         {StageKind::W, "W", "for weights"},
                                         {StageKind::BW, "BW", "both"}}};

constexpr std::string_view kStyle = R"svg(<style>
text { font-family: sans-serif; fill: #000; }
.F { fill: #56B4E9; } .B { fill: #F0E442; } .W { fill: #009E73; } .BW { fill: #D55E00; }
.box { stroke: #222; stroke-width: 0.7; } .later { fill: #000; fill-opacity: 0.6; } .idle { fill: #EEE; }
.what { font-size: 9px; text-anchor: middle; } .which { font-size: 12px; font-weight: bold; text-anchor: middle; }
.tick { stroke: #BBB; stroke-width: 0.7; } .axis { font-size: 10px; text-anchor: middle; }
.side { font-size: 11px; } .title { font-size: 15px; font-weight: bold; }
</style>
<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<line x1="0" y1="0" x2="0" y2="8" stroke="#FFF" stroke-width="2" stroke-opacity="0.35"/></pattern></defs>
)svg";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    if (c == '<') out += "&lt;";
    if (c == '>') out += "&gt;";
    if (c != '&' && c != '<' && c != '>') out += c;
  }
  return out;
}

std::string rectangle(std::string_view look, double x, double y, double width, double height) {
  return fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", look, x, y,
                     width, height);
}

std::string text_at(std::string_view look, double x, double y, std::string_view text) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", look, x, y, escaped(text));
}

std::string hatched(double x, double y, double width, double height) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"url(#hatch)\"/>\n", x,
                     y, width, height);
}

class Picture {
 public:
  explicit Picture(const Simulation& simulation) : simulation_(simulation) {
    std::vector<double> lengths;
    for (const auto& actions : simulation.actions) {
      for (const TimedAction& timed : actions) {
        if (timed.end > timed.start) lengths.push_back(timed.end - timed.start);
      }
    }
    if (lengths.empty()) return;
    // Boxes far shorter than most of them go without letters.
    std::ranges::sort(lengths);
    const double shortest = std::max(lengths.front(), lengths[lengths.size() / 2] / 3);
    scale_ = std::min(kNarrowestBox / shortest, kWidest / simulation.makespan);
  }

  std::string draw(const std::string& title) {
    const double width = std::max(kLeft + chart_width() + kRight, kLeast);
    const double height = kTop + kRowHeight * static_cast<double>(simulation_.actions.size()) + 12;
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "role=\"img\">\n<title>{2}</title>\n",
        width, height, escaped(title));
    svg_ += kStyle;
    svg_ += fmt::format("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#FFF\"/>\n", width, height);
    svg_ += text_at("title", 12, 22, title);
    svg_ += text_at(
        "side", 12, 40,
        fmt::format("takes {:.6g}, idle {:.1f}% of all pp coordinates' time. In a box: stage and kind above the "
                    "microbatch; dark edge: not its pp coordinate's first stage",
                    simulation_.makespan, 100 * simulation_.bubble_fraction));
    legend();
    ticks(height - 8);
    for (std::size_t pp_coordinate = 0; pp_coordinate < simulation_.actions.size(); ++pp_coordinate) row(pp_coordinate);
    return svg_ + "</svg>\n";
  }

 private:
  double chart_width() const { return simulation_.makespan * scale_; }
  double x_of(double time) const { return kLeft + time * scale_; }

  void legend() {
    double x = 12;
    for (const Look& look : kLooks) {
      svg_ += rectangle(fmt::format("box {}", look.name), x, 50, 24, 16);
      if (look.kind == StageKind::W) svg_ += hatched(x, 50, 24, 16);
      svg_ += text_at("what", x + 12, 61, look.name);
      svg_ += text_at("side", x + 29, 62, look.meaning);
      x += 44 + 6.0 * static_cast<double>(look.meaning.size());
    }
    svg_ += rectangle("idle", x, 50, 24, 16) + text_at("side", x + 29, 62, "idle");
  }

  // A round number of time units between ticks: 1, 2 or 5 times a power of ten.
  void ticks(double bottom) {
    if (simulation_.makespan <= 0) return;
    const double least = kTickDistance / scale_;
    double step = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (step < least) step *= factor;
    }
    for (int i = 0; i * step <= simulation_.makespan * (1 + 1e-9); ++i) {
      const double x = x_of(i * step);
      svg_ += fmt::format("<line class=\"tick\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n", x,
                          kTop - 6, bottom);
      svg_ += text_at("axis", x, kTop - 10, fmt::format("{:.6g}", i * step));
    }
  }

  void row(std::size_t pp_coordinate) {
    const double y = kTop + kRowHeight * static_cast<double>(pp_coordinate);
    svg_ += text_at("side", 12, y + 19, fmt::format("pp {}", pp_coordinate));
    svg_ += rectangle("idle", kLeft, y, chart_width(), kBoxHeight);
    const auto& actions = simulation_.actions[pp_coordinate];
    for (const TimedAction& timed : actions) box(timed, y, timed.action.stage != actions[0].action.stage);
    svg_ += text_at("side", kLeft + chart_width() + 8, y + 19,
                    fmt::format("idle {:.1f}%, keeps {}", 100 * simulation_.bubble_fractions[pp_coordinate],
                                simulation_.peak_in_flight[pp_coordinate]));
  }

  // `later`: not the first stage of its pp coordinate, shown by a dark edge.
  void box(const TimedAction& timed, double y, bool later) {
    const double x = x_of(timed.start);
    const double width = (timed.end - timed.start) * scale_;
    if (width <= 0) return;
    const std::string_view kind = stage_kind_name(timed.action.kind);
    svg_ +=
        fmt::format("<g><title>{} from {:.6g} to {:.6g}</title>\n", to_string(timed.action), timed.start, timed.end);
    svg_ += rectangle(fmt::format("box {}", kind), x, y, width, kBoxHeight);
    if (timed.action.kind == StageKind::W) svg_ += hatched(x, y, width, kBoxHeight);
    if (later) svg_ += rectangle("later", x, y + kBoxHeight - 3, width, 3);
    const std::string what = fmt::format("{}{}", timed.action.stage, kind);
    const std::string which = std::to_string(timed.action.microbatch);
    const double middle = x + width / 2;
    if (width >= 5.5 * static_cast<double>(what.size())) svg_ += text_at("what", middle, y + 11, what);
    if (width >= 7 * static_cast<double>(which.size())) svg_ += text_at("which", middle, y + 24, which);
    svg_ += "</g>\n";
  }

  const Simulation& simulation_;
  double scale_ = 1;  // pixels per unit of time
  std::string svg_;
};

}  // namespace

std::string timeline_svg(const Simulation& simulation, const std::string& title) {
  return Picture(simulation).draw(title);
}

}  // namespace orthant
