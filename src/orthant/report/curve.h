// A curve of many points as a picture of a fixed width: of the points that share a column the first, the last, the
// least and the largest are drawn, so that nothing that would be seen is lost. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/report/marks.h"

namespace orthant::report {

struct Curve {
  std::string name;
  std::vector<std::int64_t> steps;  // ascending
  std::vector<double> values;       // of the same length; what is not finite is a gap
  bool dots = false;                // few points, drawn apart
};

// At most four points of each of `columns` columns.
Curve thinned(const Curve& curve, std::size_t columns);

// An SVG of curves over one axis of steps. `id`: of the element, unique on a page.
std::string curve_svg(const std::string& id, const std::string& title, const std::vector<Curve>& curves,
                      const std::vector<Mark>& marks);

// Places of an axis at round numbers, seven at most, and what is written there: no two alike.
struct Tick {
  double value = 0;
  std::string label;
};
std::vector<Tick> ticks_between(double least, double most);

// As people read a number on an axis: "1.2k", "3.5e-05".
std::string short_number(double value);

// With the five characters that HTML takes for its own replaced.
std::string escaped(const std::string& text);

}  // namespace orthant::report
