#include "orthant/plan/search/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/base/text_table.h"

namespace orthant {
namespace {

const std::vector<std::string> kNames = {"weak", "strong"};

std::vector<int> sorted_counts(std::span<const int> cards) {
  std::vector<int> counts(cards.begin(), cards.end());
  std::ranges::sort(counts);
  counts.erase(std::ranges::unique(counts).begin(), counts.end());
  if (counts.empty() || counts.front() < 1) {
    throw ConfigError(
        counts.empty() ? "--scaling names no number of cards" : fmt::format("--scaling: {} cards", counts.front()),
        {.remedy = "list numbers from 1 up, as in --scaling 8,16,32"});
  }
  return counts;
}

std::int64_t batch_of(const SearchRequest& request, int cards, ScalingKind kind) {
  if (kind == ScalingKind::strong) return request.global_batch;
  const std::int64_t rows = request.global_batch * cards;
  if (rows % request.cards != 0) {
    throw ConfigError(
        fmt::format("weak scaling from {} cards with a global batch of {} gives {} cards no whole number of rows",
                    request.cards, request.global_batch, cards),
        {.remedy = "set a global batch that the number of cards divides, or scale strongly"});
  }
  return rows / request.cards;
}

// The most frequent reason, and the advice that the search has.
std::string reason_of(const SearchResult& result) {
  std::string text = "nothing fits";
  const auto most = std::ranges::max_element(result.rejected, {}, [](const auto& entry) { return entry.second; });
  if (most != result.rejected.end()) text = most->first;
  if (!result.advice.empty())
    text += fmt::format("; {}: {}", result.advice.front().change, result.advice.front().effect);
  return text;
}

ScalingPoint point_at(SearchRequest request, int cards, ScalingKind kind) {
  request.global_batch = batch_of(request, cards, kind);
  request.cards = cards;
  request.top = 1;
  SearchResult result = search(request);
  ScalingPoint point{.cards = cards, .global_batch = request.global_batch};
  if (result.plans.empty()) {
    point.why_not = reason_of(result);
  } else {
    point.plan = std::move(result.plans.front());
    point.tokens_per_second = point.plan->tokens_per_second_per_gpu * cards;
  }
  return point;
}

void fill_efficiency(std::vector<ScalingPoint>& points) {
  const auto first = std::ranges::find_if(points, [](const ScalingPoint& point) { return point.plan.has_value(); });
  for (ScalingPoint& point : points) {
    if (!point.plan) continue;
    point.efficiency = point.plan->tokens_per_second_per_gpu / first->plan->tokens_per_second_per_gpu;
  }
}

}  // namespace

std::string_view scaling_name(ScalingKind kind) {
  return kNames.at(static_cast<std::size_t>(kind));
}

ScalingKind parse_scaling(std::string_view text) {
  const auto found = std::ranges::find(kNames, text);
  if (found == kNames.end()) {
    throw ConfigError(fmt::format("unknown scaling \"{}\"", text), {.remedy = did_you_mean(text, kNames)});
  }
  return static_cast<ScalingKind>(found - kNames.begin());
}

ScalingCurve scaling_curve(const SearchRequest& request, std::span<const int> cards, ScalingKind kind) {
  const std::vector<int> counts = sorted_counts(cards);
  for (const int count : counts) batch_of(request, count, kind);
  ScalingCurve curve{.kind = kind};
  for (const int count : counts) curve.points.push_back(point_at(request, count, kind));
  fill_efficiency(curve.points);
  return curve;
}

std::string scaling_text(const ScalingCurve& curve, const SearchRequest& request) {
  std::vector<TableLine> lines = {{"cards", "mesh", "batch", "tokens/s", "per card", "efficiency", "MFU", "memory"}};
  std::string refused;
  for (const ScalingPoint& point : curve.points) {
    TableLine& line = lines.emplace_back(lines.front().size(), "-");
    line[0] = std::to_string(point.cards);
    line[2] = std::to_string(point.global_batch);
    if (!point.plan) {
      refused += fmt::format("{} card{}: {}\n", point.cards, point.cards == 1 ? "" : "s", point.why_not);
      continue;
    }
    line[1] = point.plan->settings.mesh.to_string();
    line[3] = format_count(static_cast<std::int64_t>(point.tokens_per_second));
    line[4] = fmt::format("{:.0f}", point.plan->tokens_per_second_per_gpu);
    line[5] = fmt::format("{:.1f}%", 100 * point.efficiency);
    line[6] = fmt::format("{:.1f}%", 100 * point.plan->mfu);
    line[7] = format_bytes(point.plan->peak_bytes());
  }
  return fmt::format("{} scaling of {} on {}, sequences of {}\n{}{}", scaling_name(curve.kind), request.model.name,
                     request.hardware.name, request.sequence, text_table(lines, 2), refused);
}

std::string to_json(const ScalingCurve& curve, int indent) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const ScalingPoint& point : curve.points) {
    nlohmann::ordered_json& entry = points.emplace_back(nlohmann::ordered_json{
        {"cards", point.cards}, {"global_batch", point.global_batch}, {"fits", point.plan.has_value()}});
    if (!point.plan) {
      entry["why_not"] = point.why_not;
      continue;
    }
    entry["tokens_per_second"] = point.tokens_per_second;
    entry["tokens_per_second_per_gpu"] = point.plan->tokens_per_second_per_gpu;
    entry["efficiency"] = point.efficiency;
    entry["mfu"] = point.plan->mfu;
    entry["mesh"] = point.plan->settings.mesh.to_string();
    entry["memory_bytes"] = point.plan->peak_bytes();
  }
  return json_text(nlohmann::ordered_json{{"scaling", scaling_name(curve.kind)}, {"points", points}}, indent);
}

}  // namespace orthant
