#include "orthant/mesh/axis_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/mesh/fields.h"

namespace orthant {
namespace {

std::string joined(const std::vector<Axis>& axes, char separator) {
  std::string text;
  for (Axis axis : axes) {
    if (!text.empty()) text += separator;
    text += axis_name(axis);
  }
  return text;
}

AxisSet as_set(const std::vector<Axis>& axes) {
  AxisSet set;
  for (Axis axis : axes) set = set | axis;
  return set;
}

// Places each axis left out right after the one it follows in the default order.
AxisOrder complete(std::vector<Axis> axes) {
  for (std::size_t i = 0; i < kDefaultOrder.size(); ++i) {
    if (std::ranges::find(axes, kDefaultOrder[i]) != axes.end()) continue;
    const auto place = i == 0 ? axes.begin() : std::ranges::find(axes, kDefaultOrder[i - 1]) + 1;
    axes.insert(place, kDefaultOrder[i]);
  }
  AxisOrder order;
  std::ranges::copy(axes, order.begin());
  return order;
}

// The named axes without repetition, then the needed ones that were left out: what the user most likely meant.
std::string mended(const std::vector<Axis>& named, AxisSet needed, char separator) {
  std::vector<Axis> axes;
  for (Axis axis : named) {
    if (axis != Axis::ep && std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }
  for (Axis axis : needed - as_set(axes)) axes.push_back(axis);
  return axes.empty() ? order_text(kDefaultOrder, separator) : joined(axes, separator);
}

}  // namespace

AxisOrder parse_order(std::string_view text, AxisSet needed, char separator) {
  if (trimmed(text).empty()) return kDefaultOrder;
  std::vector<Axis> named;
  for (std::string_view field : split_fields(text, separator)) {
    if (field.empty()) {
      throw ConfigError(fmt::format("order {:?} has an empty place", text),
                        {.remedy = fmt::format("write axes with one {:?} between them, such as {}", separator,
                                               order_text(kDefaultOrder, separator))});
    }
    named.push_back(parse_axis(field));
  }
  const auto fail = [&](std::string message) {
    throw ConfigError(std::move(message),
                      {.remedy = fmt::format("set the order to {}", mended(named, needed, separator))});
  };
  if (as_set(named).contains(Axis::ep)) {
    fail(
        fmt::format("order {:?} names ep, which is a second view of the same ranks and has no place of its own", text));
  }
  for (Axis axis : as_set(named)) {
    if (std::ranges::count(named, axis) > 1) fail(fmt::format("order {:?} names {} twice", text, axis_name(axis)));
  }
  if (const AxisSet missing = needed - as_set(named); !missing.empty()) {
    fail(fmt::format("order {:?} leaves out {}, which has a degree above 1", text, missing.name()));
  }
  return complete(named);
}

std::string order_text(const AxisOrder& order, char separator) {
  return joined({order.begin(), order.end()}, separator);
}

std::string short_order_text(const AxisOrder& order, AxisSet needed, char separator) {
  if (order == kDefaultOrder) return "";
  std::vector<Axis> axes(order.begin(), order.end());
  for (Axis axis : kMeshAxes - needed) {
    std::vector<Axis> fewer = axes;
    std::erase(fewer, axis);
    if (!fewer.empty() && complete(fewer) == order) axes = fewer;
  }
  return joined(axes, separator);
}

}  // namespace orthant
