// How well more cards are used: the search's best plan for each number of cards. Efficiencies follow from priced plans,
// none is a constant.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orthant/plan/search/search.h"

namespace orthant {

enum class ScalingKind {
  weak,    // the global batch grows with the cards
  strong,  // it stays
};
std::string_view scaling_name(ScalingKind kind);
ScalingKind parse_scaling(std::string_view text);  // ConfigError with the nearest name

struct ScalingPoint {
  int cards = 1;
  std::int64_t global_batch = 1;
  std::optional<Plan> plan = {};  // none: nothing fits, or nothing divides
  std::string why_not = {};       // then
  double tokens_per_second = 0;
  double efficiency = 0;  // tokens per second per card over those of the smallest count that fits
};

struct ScalingCurve {
  ScalingKind kind = ScalingKind::weak;
  std::vector<ScalingPoint> points = {};  // by cards, ascending
};

// Searches once per count; `request.cards` with its global batch is the point that weak scaling keeps the batch per
// card of. Counts are sorted, equal ones taken once. ConfigError for none, for one below 1, and for a count whose share
// of the batch is no whole number.
ScalingCurve scaling_curve(const SearchRequest& request, std::span<const int> cards, ScalingKind kind);

std::string to_json(const ScalingCurve& curve, int indent = -1);
std::string scaling_text(const ScalingCurve& curve, const SearchRequest& request);

}  // namespace orthant
