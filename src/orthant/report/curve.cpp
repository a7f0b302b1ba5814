#include "orthant/report/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

namespace orthant::report {
namespace {

constexpr double kWidth = 520, kHeight = 210;
constexpr double kLeft = 70, kRight = 12, kTop = 12, kBottom = 30;
constexpr std::size_t kColumns = 450;

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool empty() const { return least > most; }
  void widen() {
    if (most > least) return;
    const double by = most == 0 ? 1 : std::fabs(most) * 0.1;
    least -= by;
    most += by;
  }
};

class Picture {
 public:
  Picture(const std::vector<Curve>& curves, const std::vector<Mark>& marks) {
    for (const auto& curve : curves) {
      for (std::size_t i = 0; i < curve.values.size(); ++i) {
        if (!std::isfinite(curve.values[i])) continue;
        values_.add(curve.values[i]);
        steps_.add(static_cast<double>(curve.steps[i]));
      }
    }
    for (const auto& mark : marks) steps_.add(static_cast<double>(mark.step));
    if (values_.empty()) return;
    values_.widen();
    steps_.widen();
  }

  bool empty() const { return values_.empty(); }
  double x(double step) const {
    return kLeft + (step - steps_.least) / (steps_.most - steps_.least) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom - (value - values_.least) / (values_.most - values_.least) * (kHeight - kTop - kBottom);
  }

  std::string axes() const {
    std::string text;
    for (const auto& [value, label] : ticks_between(values_.least, values_.most)) {
      text += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft,
                          kWidth - kRight, y(value), y(value));
      text += fmt::format(R"(<text class="tick" text-anchor="end" x="{:.1f}" y="{:.1f}">{}</text>)", kLeft - 6,
                          y(value) + 4, label);
    }
    for (const double step : {steps_.least, (steps_.least + steps_.most) / 2, steps_.most}) {
      const auto* anchor = step == steps_.least ? "start" : step == steps_.most ? "end" : "middle";
      text += fmt::format(R"(<text class="tick" text-anchor="{}" x="{:.1f}" y="{:.1f}">{}</text>)", anchor, x(step),
                          kHeight - 8, short_number(std::round(step)));
    }
    return text;
  }

  std::string line(const Curve& curve, std::size_t number) const {
    std::string path, dots;
    bool pen = false;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
      if (!std::isfinite(curve.values[i])) {
        pen = false;
        continue;
      }
      const double px = x(static_cast<double>(curve.steps[i])), py = y(curve.values[i]);
      path += fmt::format("{}{:.1f} {:.1f}", pen ? "L" : "M", px, py);
      if (curve.dots)
        dots += fmt::format(R"(<circle class="dot line-{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", number, px, py);
      pen = true;
    }
    return fmt::format(R"(<path class="line line-{}" d="{}"/>)", number, path) + dots;
  }

  std::string mark(const Mark& mark) const {
    const double at = x(static_cast<double>(mark.step));
    return fmt::format(
        R"(<line class="mark mark-{}" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"><title>{} at step {}</title></line>)",
        mark.kind.substr(0, mark.kind.find(' ')), at, at, mark.kind == "checkpoint" ? kHeight - kBottom - 7 : kTop,
        kHeight - kBottom, escaped(mark.kind), mark.step);
  }

 private:
  Range steps_, values_;
};

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

namespace {

constexpr std::array<std::pair<double, const char*>, 4> kUnits = {{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};

std::string tick_label(double value, const std::pair<double, const char*>& unit, int decimals) {
  constexpr int kMostDecimals = 5;
  if (decimals <= kMostDecimals || value == 0) {
    return fmt::format("{:.{}f}{}", value / unit.first, value == 0 ? 0 : decimals, unit.second);
  }
  const int place = static_cast<int>(std::floor(std::log10(std::fabs(value)) + 1e-9));  // of the first digit
  return fmt::format("{:.{}e}", value, std::max(0, decimals + place));
}

}  // namespace

std::vector<Tick> ticks_between(double least, double most) {
  constexpr double kMostSpaces = 6;
  const double rough = (most - least) / kMostSpaces;
  const double tenth = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * tenth;
  for (const double of_ten : {5.0, 2.0, 1.0}) {
    if (of_ten * tenth >= rough * 0.999) step = of_ten * tenth;
  }
  const double largest = std::max(std::fabs(least), std::fabs(most));
  std::pair<double, const char*> unit = {1, ""};
  for (const auto& one : kUnits) {
    if (largest >= one.first && one.first > unit.first) unit = one;
  }
  // As many decimals as tell neighbours apart.
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step / unit.first) + 1e-9)));
  std::vector<Tick> ticks;
  for (double place = std::ceil(least / step - 1e-9); place * step <= most + step * 1e-9; ++place) {
    const double value = place * step + 0.0;
    ticks.push_back({value, tick_label(value, unit, decimals)});
  }
  return ticks;
}

std::string short_number(double value) {
  const double size = std::fabs(value);
  for (const auto& [scale, unit] : kUnits) {
    if (size >= scale) return fmt::format("{:.3g}{}", value / scale, unit);
  }
  return size > 0 && size < 1e-3 ? fmt::format("{:.2g}", value) : fmt::format("{:.3g}", value);
}

Curve thinned(const Curve& curve, std::size_t columns) {
  if (curve.values.size() <= 4 * columns || curve.steps.empty()) return curve;
  Curve thin{.name = curve.name, .steps = {}, .values = {}, .dots = curve.dots};
  const double first = static_cast<double>(curve.steps.front());
  const double width = std::max(1.0, static_cast<double>(curve.steps.back()) - first) / static_cast<double>(columns);
  std::size_t begin = 0;
  while (begin < curve.values.size()) {
    const auto column = std::floor((static_cast<double>(curve.steps[begin]) - first) / width);
    std::size_t end = begin, least = begin, most = begin;
    for (; end < curve.values.size() && std::floor((static_cast<double>(curve.steps[end]) - first) / width) == column;
         ++end) {
      if (!std::isfinite(curve.values[end])) continue;
      if (!std::isfinite(curve.values[least]) || curve.values[end] < curve.values[least]) least = end;
      if (!std::isfinite(curve.values[most]) || curve.values[end] > curve.values[most]) most = end;
    }
    for (const auto i : std::set<std::size_t>{begin, least, most, end - 1}) {
      thin.steps.push_back(curve.steps[i]);
      thin.values.push_back(curve.values[i]);
    }
    begin = end;
  }
  return thin;
}

std::string curve_svg(const std::string& id, const std::string& title, const std::vector<Curve>& curves,
                      const std::vector<Mark>& marks) {
  std::vector<Curve> drawn;
  for (const auto& curve : curves) drawn.push_back(thinned(curve, kColumns));
  const Picture picture(drawn, marks);
  if (picture.empty()) return "";
  std::string data;
  std::string text = fmt::format(
      R"(<figure><figcaption>{}</figcaption><svg id="{}" class="curve" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="{} by step">)",
      escaped(title), id, kWidth, kHeight, escaped(title));
  text += picture.axes();
  for (const auto& mark : marks) text += picture.mark(mark);
  for (std::size_t c = 0; c < drawn.size(); ++c) text += picture.line(drawn[c], c);
  text += fmt::format(R"(<line class="cursor" x1="0" x2="0" y1="{}" y2="{}" visibility="hidden"/></svg>)", kTop,
                      kHeight - kBottom);
  for (std::size_t c = 0; c < drawn.size(); ++c) {
    const auto& curve = drawn[c];
    data += fmt::format("{}{{\"name\":\"{}\",\"points\":[", c == 0 ? "" : ",", escaped(curve.name));
    bool first = true;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
      if (!std::isfinite(curve.values[i])) continue;
      data += fmt::format("{}[{},{:.6g},{:.1f}]", first ? "" : ",", curve.steps[i], curve.values[i],
                          picture.x(static_cast<double>(curve.steps[i])));
      first = false;
    }
    data += "]}";
  }
  return text +
         fmt::format(
             R"(<p class="readout" id="{}-readout" aria-live="polite">&nbsp;</p><script type="application/json" data-for="{}">[{}]</script></figure>)",
             id, id, data);
}

}  // namespace orthant::report
