#include "orthant/train/parity_suspects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace orthant {
namespace {

// Every axis, and every product of several.
std::vector<Suspect> axis_products(const Mesh& mesh) {
  std::vector<Suspect> found;
  for (const Axis axis : mesh.active_axes()) {
    const Suspect single{std::string(axis_name(axis)), mesh.degree(axis)};
    const auto before = found.size();
    found.push_back(single);
    for (std::size_t i = 0; i < before; ++i) {
      found.push_back({fmt::format("{} x {}", found[i].name, single.name), found[i].count * single.count});
    }
  }
  return found;
}

// "dp", "dp, tp or the microbatches".
std::string alternatives(const std::vector<std::string>& names) {
  if (names.size() == 1) return names.front();
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

// A factor that is not the same for all elements says little: the axis whose number comes nearest, when one comes near.
std::string rough_cause(double mean_factor, const std::vector<Suspect>& suspects) {
  constexpr double kNear = 1.25;
  std::vector<std::string> names;
  double nearest = kNear;
  for (const Suspect& suspect : suspects) {
    if (!(mean_factor > 0)) break;
    const double ratio = mean_factor * static_cast<double>(suspect.count);
    const double distance = std::max(ratio, 1 / ratio);
    if (!(distance <= nearest)) continue;
    if (distance < nearest) names.clear();
    nearest = distance;
    names.push_back(suspect.name);
  }
  if (names.empty()) return "by no single factor: a sum over an axis is missing, or other rows were summed";
  return fmt::format("by no single factor, x{:.2g} in the mean: perhaps a sum over {} is missing", mean_factor,
                     alternatives(names));
}

}  // namespace

std::vector<Suspect> suspects(const RunConfig& tested, const RunConfig& reference) {
  std::vector<Suspect> found;
  const auto add = [&](const Suspect& suspect) {
    if (suspect.count > 1 && std::ranges::find(found, suspect) == found.end()) found.push_back(suspect);
  };
  for (const RunConfig* config : {&tested, &reference}) {
    for (const Suspect& product : axis_products(config->mesh)) add(product);
    add({"the microbatches", config->trainer.microbatches});
  }
  add({"the rows of a step", tested.global_batch_size});
  add({"the positions of a step", tested.global_batch_size * tested.data.sequence_length});
  return found;
}

std::string likely_cause(double factor, double mean_factor, const std::vector<Suspect>& suspects) {
  if (!std::isfinite(factor)) return rough_cause(mean_factor, suspects);
  if (factor <= 0) return fmt::format("x{:.4g}: it is missing, or has the wrong sign", factor);
  const bool more = factor > 1;
  const double count = more ? factor : 1 / factor;
  const auto whole = std::round(count);
  if (whole < 2 || std::abs(count - whole) > 1e-3 * whole)
    return fmt::format("it is {:.4g} times the right one", factor);
  std::vector<std::string> names;
  for (const Suspect& suspect : suspects) {
    if (static_cast<double>(suspect.count) == whole) names.push_back(suspect.name);
  }
  if (names.empty()) names.push_back(fmt::format("something there are {:.0f} of", whole));
  return fmt::format(
      "x{:.4g}, as for {}: {}", factor, alternatives(names),
      more ? "a sum is done twice, or a mean is not taken" : "a sum is missing, or a mean is taken twice");
}

}  // namespace orthant
